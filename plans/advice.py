"""A choice written out as engines take it."""

import shlex

import msgspec

from plans.gain import Given
from plans.methods import Config, Method
from plans.model_replay import ModelMethod
from spec import BestFirst, Draft

NO_DRAFTS = {
    "outrider": '[engine.speculative]\ndraft = "none"\nk = 1\n',
    "vllm": "leave out --speculative-config",
    "sglang": "leave out --speculative-algorithm",
    "llama.cpp": "--spec-type none",
}

_OF_LLAMA_CPP = {"model": "draft-simple", "eagle3": "draft-eagle3"}


def advice(choice: Config, method: Method | Given | ModelMethod, *, is_adaptive: bool) -> dict[str, str]:
    """Write a choice out for Outrider's runtime.toml, vLLM, SGLang and llama.cpp; if one lacks it, what is nearest."""
    if isinstance(method, ModelMethod):
        return _of_model(method.draft.value, choice.size, method.target, method.file, method.top, method.max_depth)
    if isinstance(method, Given):
        name = method.name.lower()
        if name in ("model", "linear", "medusa", "eagle", "eagle3"):
            return _of_model(name, choice.size)
        missing = f"{method.name} with {choice.size} drafted tokens: see the engine's documentation for this method"
        return dict.fromkeys(NO_DRAFTS, missing)
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


def _of_model(
    draft: str, k: int, target: str = "TARGET", file: str = "HEADS", top: int = 1, depth: int = 0
) -> dict[str, str]:
    """Write out drafts of a model or heads; those with `top` above 1 are trees of `k` nodes in `depth` layers."""
    is_eagle = draft in ("eagle", "eagle3")
    steps = min(k, depth or k)
    shape = f'shape = {{ kind = "dynamic", nodes = {k}, top = {top}, depth = {steps} }}' if top > 1 else f"k = {k}"
    of_target = f"[model]\nsource = {_toml(target)}\n\n[engine]\nadaptive = false\n"
    own = f'{of_target}\n[engine.speculative]\ndraft = "{draft}"\n{shape}\nmodel = {_toml(file)}\n'
    if draft == "linear":
        missing = "it has no such heads: --acceptance weighs other methods by the rates that are known of them"
        return {"outrider": own, "vllm": missing, "sglang": missing, "llama.cpp": missing}
    method = "draft_model" if draft == "model" else draft
    config = msgspec.json.encode({"method": method, "model": file, "num_speculative_tokens": steps}).decode()
    algorithm = "STANDALONE" if draft == "model" else draft.upper()
    path = shlex.quote(file)
    return {
        "outrider": own,
        "vllm": f"--speculative-config {shlex.quote(config)}" + ("   # a chain" if top > 1 else ""),
        "sglang": f"--speculative-algorithm {algorithm} --speculative-draft-model-path {path} "
        f"--speculative-num-steps {steps} --speculative-eagle-topk {top} --speculative-num-draft-tokens {k + 1}"
        if is_eagle or draft == "model"
        else f"it has no {draft} heads",
        "llama.cpp": f"--spec-type {_OF_LLAMA_CPP[draft]} --spec-draft-model {path} --spec-draft-n-max {steps}"
        + ("   # a chain" if top > 1 else "")
        if draft in _OF_LLAMA_CPP
        else f"it has no {draft} heads",
    }


def _toml(text: str) -> str:
    return msgspec.json.encode(text).decode()  # a string of JSON is one of TOML
