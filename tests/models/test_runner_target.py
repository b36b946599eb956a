import numpy as np
import pytest

from models.llama import Llama
from models.runner_target import RunnerTarget
from models.weights import tiny_llama
from spec import SamplingParams, SpecConfig, Target, generate
from tests.models.invariance import assert_runner_target_scores_every_fed_position


@pytest.mark.parametrize("seed", range(3))
def test_runner_target_scores_every_fed_position(seed):
    model = Llama(*tiny_llama(seed))
    prompt = np.random.default_rng(seed).integers(0, 97, 12).tolist() * 3
    assert_runner_target_scores_every_fed_position(model, prompt, max_new=60)


@pytest.mark.parametrize("verify", ["resample", "match"])
def test_sampled_speculation_sees_the_rows_of_the_plain_run(verify):
    model = Llama(*tiny_llama(4))
    prompt = [3, 1, 4, 1, 5, 9, 2, 6] * 4
    params = SamplingParams(temperature=0.4)

    def tokens(config):
        return generate(RunnerTarget(model, 40, 4), config, prompt, params, 11, 50, (), verify=verify)

    spec = tokens(SpecConfig.parse("prompt_lookup", 4))
    assert spec.stats.drafted > 0
    if verify == "match":  # the only rule whose text does not depend on the drafts
        plain = tokens(SpecConfig.parse("none", 4))
        assert (spec.tokens, spec.logprobs) == (plain.tokens, plain.logprobs)
    fresh = RunnerTarget(model, 40, 4).extend(prompt + spec.tokens[:-1])[len(prompt) - 1 :].astype(float)
    logs = fresh - fresh.max(-1, keepdims=True)
    logs -= np.log(np.exp(logs).sum(-1, keepdims=True))
    np.testing.assert_allclose(spec.logprobs, logs[np.arange(50), spec.tokens], rtol=1e-9)


def test_truncate_gives_back_blocks_and_positions():
    target: Target = RunnerTarget(Llama(*tiny_llama(0)), 3, 4)
    first = target.extend([1, 2, 3, 4, 5])
    for _ in range(20):  # more than the blocks, were they not given back
        target.extend([6, 7, 8, 9])
        target.truncate(5)
        assert target.cached() == 5
    target.truncate(0)
    np.testing.assert_array_equal(target.extend([1, 2, 3, 4, 5]), first)


def test_the_cache_has_an_end_and_says_so():
    target = RunnerTarget(Llama(*tiny_llama(0)), 3, 4)
    assert target.max_model_len == 12
    target.extend([1] * 10)
    with pytest.raises(ValueError, match=r"13 positions.*12"):
        target.extend([1, 2, 3])
    with pytest.raises(ValueError, match="id 97"):
        target.extend([97])
    assert target.cached() == 10
    with pytest.raises(ValueError, match=r"length 11: must be in \[0, 10\]"):
        target.truncate(11)
    target.extend([1, 2])
    assert RunnerTarget(Llama(*tiny_llama(0)), 1000, 4).max_model_len == 256
