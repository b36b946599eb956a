"""A choice written out as engines take it."""

import msgspec

from plans.gain import Given
from plans.methods import Config, Method
from spec import BestFirst, Draft

NO_DRAFTS = {
    "outrider": '[engine.speculative]\ndraft = "none"\nk = 1\n',
    "vllm": "leave out --speculative-config",
    "sglang": "leave out --speculative-algorithm",
    "llama.cpp": "--spec-type none",
}


def advice(choice: Config, method: Method | Given, *, is_adaptive: bool) -> dict[str, str]:
    """Write a choice out for Outrider's runtime.toml, vLLM, SGLang and llama.cpp; if one lacks it, what is nearest."""
    if isinstance(method, Given):
        return _of_given(method, choice.size)
    draft, k = method.draft, choice.size
    lines = [f"[engine]\nadaptive = {str(is_adaptive).lower()}\n\n[engine.speculative]", f'draft = "{draft.draft}"']
    if draft.draft is Draft.SUFFIX:
        is_tree = isinstance(draft.shape, BestFirst)
        lines.append(f'shape = {{ kind = "best_first", nodes = {k} }}' if is_tree else f"k = {k}")
        vllm: dict[str, object] = {
            "method": "suffix",
            "num_speculative_tokens": k,
            "suffix_decoding_max_tree_depth": draft.max_depth,
            "suffix_decoding_max_spec_factor": draft.factor,
            "suffix_decoding_min_token_prob": 0.1,
        }
        if not method.has_finished:
            vllm["suffix_decoding_max_cached_requests"] = 0
        shortest, longest = 1, 12
    else:
        lines += [f"k = {k}", f"max_ngram = {draft.max_ngram}"]
        if draft.draft is Draft.PROMPT_LOOKUP:
            lines += [f"min_ngram = {draft.min_ngram}", f'occurrence = "{draft.occurrence}"']
        shortest, longest = draft.min_ngram, draft.max_ngram
        vllm = {
            "method": "ngram",
            "num_speculative_tokens": k,
            "prompt_lookup_max": longest,
            "prompt_lookup_min": shortest,
        }
    of_vllm = f"--speculative-config '{msgspec.json.encode(vllm).decode()}'"
    if draft.draft is Draft.NGRAM or (draft.draft is Draft.PROMPT_LOOKUP and draft.occurrence == "latest"):
        of_vllm += "   # vLLM copies from the earliest occurrence: see lookup-earliest for what that gives"
    return {
        "outrider": "\n".join(lines) + "\n",
        "vllm": of_vllm,
        "sglang": f"--speculative-algorithm NGRAM --speculative-num-draft-tokens {k + 1} "
        f"--speculative-ngram-min-match-window-size {shortest} --speculative-ngram-max-match-window-size {longest}"
        "   # a tree from earlier requests too; the root counts as one of its tokens",
        "llama.cpp": f"--spec-type ngram-simple --spec-ngram-simple-size-n {longest if longest < 12 else 3} "
        f"--spec-ngram-simple-size-m {k}   # it matches n tokens exactly, and no fewer",
    }


def _of_given(method: Given, k: int) -> dict[str, str]:
    name = method.name.lower()
    if name not in ("eagle", "eagle3"):
        missing = f"{method.name} with {k} drafted tokens: see the engine's documentation for this method"
        return {"outrider": missing, "vllm": missing, "sglang": missing, "llama.cpp": missing}
    config = msgspec.json.encode({"method": name, "model": "HEADS", "num_speculative_tokens": k}).decode()
    return {
        "outrider": f"{method.name} with {k} drafted tokens: see Outrider's documentation for heads",
        "vllm": f"--speculative-config '{config}'",
        "sglang": f"--speculative-algorithm {name.upper()} --speculative-draft-model-path HEADS "
        f"--speculative-num-steps {k} --speculative-eagle-topk 1 --speculative-num-draft-tokens {k + 1}",
        "llama.cpp": f"--spec-type draft-eagle3 --spec-draft-n-max {k} --spec-draft-model HEADS"
        if name == "eagle3"
        else "llama.cpp has EAGLE-3 heads only",
    }
