"""Every vector, our own and those beside the checkout: tokens, counts and generators equal, floats to 1e-9."""

import json

import pytest

import spec
from tests.golden import make
from tests.spec.targets import config_of, fake_target, params_of, row_of, rows_of
from tests.spec.vectors import FOLDERS, close, each


@each("pcg32")
def test_pcg32(case):
    rng = spec.Pcg32(case["initstate"], case["initseq"])
    assert [rng.next_u32() for _ in case["u32"]] == case["u32"]


@each("lookup")
def test_lookup(case):
    assert spec.prompt_lookup(case["ctx"], case["k"], case["max_ngram"], case["min_ngram"]) == case["draft"]


@each("ngram")
def test_ngram(case):
    assert spec.ngram_draft(case["ctx"], case["k"], case["n"]) == case["draft"]


@each("distribution")
def test_distribution(case):
    p = spec.dense_distribution(row_of(case["row"]), params_of(case["params"]), case["prompt"], case["output"])
    assert p.tolist() == close(case["p"])
    assert spec.sample_dense(p, case["u"]) == case["sample"]


@each("step")
def test_step(case):
    p, q = row_of(case["p"]).astype(float), row_of(case["q"]).astype(float)
    p[:], q[:] = case["p"], case["q"]
    assert spec.residual(p, q).tolist() == close(case["residual"])
    step = spec.speculative_step(p, q, case["x"], case["u_accept"], case["u_resample"])
    assert step == (case["token"], case["accepted"])


@each("verify")
def test_verify(case):
    rng = spec.Pcg32(case["initstate"], case["initseq"])
    rows, params = rows_of(case["rows"]), params_of(case["params"])
    verified = spec.verify_draft(rows, case["draft"], case["draft_probs"], params, case["prompt"], case["output"], rng)
    assert (list(verified.tokens), verified.n_accepted) == (case["tokens"], case["n_accepted"])
    assert list(verified.logprobs) == close(case["logprobs"])
    assert rng.next_u32() == case["next_u32"]


@each("generate")
def test_generate(case):
    target = fake_target(**case["target"])
    generated = spec.generate(
        target,
        config_of(case["draft"], case["k"]),
        case["prompt"],
        params_of(case["params"]),
        case["seed"],
        case["max_new"],
        case["eos"],
        choice=case["choice"],
        verify=case["verify"],
    )
    assert list(generated.tokens) == case["tokens"]
    assert list(generated.logprobs) == close(case["logprobs"])
    assert generated.finish_reason == case["finish_reason"]
    stats = generated.stats
    counted = (stats.drafted, stats.accepted, stats.target_calls, target.num_calls, target.cached())
    assert counted == tuple(case[name] for name in ("drafted", "accepted", "target_calls", "target_calls", "cached"))


@pytest.mark.parametrize("name", make.FILES)
def test_own_vectors_are_what_the_reference_computes(name):
    written = json.loads((FOLDERS["own"] / f"{name}.json").read_text())
    assert same(written, json.loads(make.text_of(name)))


def same(one, other):
    """Equal, and floats, wherever they are, to 1e-9."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == (close(other) if isinstance(other, float) else other)
