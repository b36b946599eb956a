"""The semantics of a round once more: slow, plain Python, and no line shared with `spec`.

Parameters are dicts with the field names of `SamplingParams`, rows are lists of floats, and a target is
the dict of `seed`, `vocab`, `order` and `sharp` that `fake_row` reads. `python -m tests.reference` writes
the vectors anew.
"""

import math
import struct

MASK64 = 2**64 - 1
MULTIPLIER = 6364136223846793005

DEFAULT_PARAMS = {
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "logit_bias": {},
    "min_tokens": 0,
    "stop_token_ids": [],
}


def make_params(**changes):
    assert changes.keys() <= DEFAULT_PARAMS.keys()
    return {**DEFAULT_PARAMS, **changes}


# ------------ random numbers


class Pcg32:
    def __init__(self, initstate, initseq=0):
        self.inc = (initseq * 2 + 1) & MASK64
        self.state = 0
        self.next_u32()
        self.state = (self.state + initstate) & MASK64
        self.next_u32()

    def next_u32(self):
        old = self.state
        self.state = (old * MULTIPLIER + self.inc) & MASK64
        word = (((old >> 18) ^ old) >> 27) & 0xFFFFFFFF
        turn = old >> 59
        return ((word >> turn) | (word << (32 - turn))) & 0xFFFFFFFF

    def next_f64(self):
        return self.next_u32() / 2**32


def splitmix_output(x):
    z = (x + 0x9E3779B97F4A7C15) & MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
    return z ^ (z >> 31)


def lane(seed, number):
    if number == 0:
        return Pcg32(seed, 0)
    return Pcg32(splitmix_output((splitmix_output(seed) + number) & MASK64), number)


def stream(seed, choice=0):
    return lane(seed, 2 * choice)


# ------------ from a row to a distribution


def apply_penalties(row, params, prompt, output):
    x = [float(logit) for logit in row]
    for token, bias in params["logit_bias"].items():
        x[int(token)] += bias
    if len(output) < params["min_tokens"]:
        for token in params["stop_token_ids"]:
            x[token] = -math.inf
    for token in range(len(x)):
        if token in prompt or token in output:
            x[token] = (
                x[token] / params["repetition_penalty"] if x[token] > 0 else x[token] * params["repetition_penalty"]
            )
        count = list(output).count(token)
        if count:
            x[token] -= params["frequency_penalty"] * count + params["presence_penalty"]
    return x


def argmax(x):
    return min(range(len(x)), key=lambda token: (-x[token], token))


def one_hot(token, vocab):
    return [1.0 if other == token else 0.0 for other in range(vocab)]


def normalize(weights):
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def softmax(x):
    return normalize([math.exp(value - max(x)) for value in x])


def keep_only(p, kept):
    return normalize([p[token] if token in kept else 0.0 for token in range(len(p))])


def distribution(row, params, prompt, output):
    x = apply_penalties(row, params, prompt, output)
    if params["temperature"] == 0:
        return one_hot(argmax(x), len(x))
    x = [value / params["temperature"] for value in x]
    p = softmax(x)
    best_first = sorted(range(len(p)), key=lambda token: (-x[token], token))
    kept = [token for token in best_first if not p[token] < params["min_p"] * max(p)]
    if params["top_k"] > 0:
        kept = kept[: params["top_k"]]
    if params["top_p"] < 1:
        p = keep_only(p, kept)
        kept = [
            token for rank, token in enumerate(kept) if math.fsum(p[better] for better in kept[:rank]) < params["top_p"]
        ]
    return keep_only(p, kept)


def sample_dense(p, u):
    running = 0.0
    for token, mass in enumerate(p):
        running += mass
        if u < running:
            return token
    return max(token for token in range(len(p)) if p[token] > 0)


def sample(row, params, prompt, output, rng):
    p = distribution(row, params, prompt, output)
    if params["temperature"] == 0:
        return argmax(p)
    return sample_dense(p, rng.next_f64())


def logprob(row, token):
    top = max(row)
    return row[token] - top - math.log(math.fsum(math.exp(value - top) for value in row))


# ------------ drafts


def prompt_lookup(ctx, k, max_ngram, min_ngram):
    t = len(ctx)
    for n in range(max_ngram, min_ngram - 1, -1):
        if n >= t:
            continue
        starts = [i for i in range(t - n) if ctx[i : i + n] == ctx[t - n :]]
        if starts:
            i = max(starts)
            return ctx[i + n : i + n + k] if k > 0 else []
    return []


def ngram_draft(ctx, k, n):
    ctx = list(ctx)
    draft = []
    while len(draft) < k:
        for m in range(n - 1, 0, -1):
            followers = [ctx[i + m] for i in range(len(ctx) - m) if ctx[i : i + m] == ctx[-m:]]
            if followers:
                break
        else:
            return draft
        token = min(set(followers), key=lambda follower: (-followers.count(follower), follower))
        draft.append(token)
        ctx.append(token)
    return draft


def propose(draft, ctx, k, max_ngram=3, min_ngram=1):
    if draft == "none":
        return []
    if draft == "ngram":
        return ngram_draft(ctx, k, max_ngram)
    return prompt_lookup(ctx, k, max_ngram, min_ngram)


# ------------ verifying a round


def residual(p, q):
    left = [max(0.0, a - b) for a, b in zip(p, q, strict=True)]
    return normalize(left) if math.fsum(left) > 0 else list(p)


def speculative_step(p, q, x, u_accept, u_resample):
    if u_accept < p[x] / q[x]:
        return x, True
    return sample_dense(residual(p, q), u_resample), False


def verify_position(row, d, q, params, prompt, output, rng, verify):
    """The token one position emits, and whether the round goes on behind it."""
    p = distribution(row, params, prompt, output)
    if params["temperature"] == 0:
        return argmax(p), argmax(p) == d
    if verify == "match":
        token = sample_dense(p, rng.next_f64())
        return token, token == d
    u_accept = rng.next_f64()
    u_resample = rng.next_f64()
    return speculative_step(p, q or one_hot(d, len(p)), d, u_accept, u_resample)


def verify_draft(rows, draft, draft_probs, params, prompt, output, rng, verify="resample"):
    """`(tokens, logprobs, n_accepted)`."""
    tokens = []
    for i, d in enumerate(draft):
        q = draft_probs[i] if draft_probs is not None else None
        token, accepted = verify_position(rows[i], d, q, params, prompt, output + tokens, rng, verify)
        tokens.append(token)
        if not accepted:
            break
    else:
        tokens.append(sample(rows[len(draft)], params, prompt, output + tokens, rng))
    return tokens, [logprob(row, token) for row, token in zip(rows, tokens, strict=False)], len(tokens) - 1


# ------------ the loop


def float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def fake_row(target, ctx):
    h = target["seed"]
    for token in ctx[-target["order"] :]:
        h = (h * MULTIPLIER + token + 1442695040888963407) & MASK64
    rng = Pcg32(h, 0)
    return [float32(target["sharp"] * rng.next_f64()) for _ in range(target["vocab"])]


def generate(target, draft, k, prompt, params, seed, max_new, eos, *, choice=0, verify="resample", row=fake_row):
    """A dict with the fields that a vector of `generate` must equal."""
    stops = set(eos) | set(params["stop_token_ids"])
    params = {**params, "stop_token_ids": sorted(stops)}
    rng = stream(seed, choice)
    emitted, logprobs = [], []
    drafted = accepted = target_calls = 0
    finish_reason = None
    while finish_reason is None:
        ctx = prompt + emitted
        ids = propose(draft, ctx, min(k, max_new - len(emitted) - 1))
        rows = [row(target, ctx + ids[:i]) for i in range(len(ids) + 1)]
        tokens, row_logprobs, n_accepted = verify_draft(rows, ids, None, params, prompt, emitted, rng, verify)
        kept = 0
        for token, token_logprob in zip(tokens, row_logprobs, strict=True):
            emitted.append(token)
            logprobs.append(token_logprob)
            kept += 1
            if token in stops:
                finish_reason = "stop"
                break
        if finish_reason is None and len(emitted) == max_new:
            finish_reason = "length"
        drafted += len(ids)
        accepted += min(n_accepted, kept)
        target_calls += 1
    return {
        "tokens": emitted,
        "logprobs": logprobs,
        "finish_reason": finish_reason,
        "drafted": drafted,
        "accepted": accepted,
        "target_calls": target_calls,
        "cached": len(prompt) + len(emitted) - 1,
    }


if __name__ == "__main__":
    from tests.golden.make import main

    main()
