"""Whole generations by trees: over checked memory the vectors', and on a llama the text of plain decoding."""

import importlib.util
import json

import numpy as np
import pytest

from models import Ask, Chunk, FakeModel, FakeProposer, FakeTarget, LoneFakeProposer, RunnerTarget
from models.kernel_choice import build_llama
from models.weights import tiny_llama
from spec import Expansion, SamplingParams, SpecConfig, generate
from tests.shared import shared_folder
from tests.spec.test_golden_trees import shape_of

KERNELS = ["numpy", "numba"] if importlib.util.find_spec("numba") else ["numpy"]
VECTORS = shared_folder() / "golden" / "tree_loop.json"
LOOPS = (
    [case for case in json.loads(VECTORS.read_text()) if case["proposer"]["kind"] == "toy"] if VECTORS.exists() else []
)
B = 4


class FedProposer:
    """One sequence of a batched proposer: it feeds what was emitted since the round before."""

    def __init__(self, proposer):
        proposer.bind(300, B)
        self.proposer = proposer
        self.fed = 0

    def begin(self, prompt, output, params):
        self.length = len(prompt) + len(output)
        context = [*prompt, *output]
        table = list(range(-(-self.length // B)))
        self.proposer.feed([Chunk(context[self.fed :], self.fed, table, 0)])
        self.fed = self.length

    def laws(self, tokens, parents, frontier):
        table = list(range(-(-self.length // B)))
        return self.proposer.laws([Ask(3, table, self.length, tokens, parents, frontier)])


@pytest.mark.parametrize("case", LOOPS)
@pytest.mark.parametrize("is_fed", [True, False])
def test_loops_of_the_vectors(case, is_fed):
    """With target and proposer over memory that checks itself, and with neither: state left over would be seen."""
    target = FakeModel(*(case["target"][name] for name in ("seed", "vocab", "order", "sharp")))
    law = [case["proposer"][name] for name in ("seed", "order", "sharp", "mix", "temperature", "top_k")]
    proposer = FakeProposer(target, *law)
    params = {**case["params"]}
    if "logit_bias" in params:
        params["logit_bias"] = {int(token): bias for token, bias in params["logit_bias"].items()}
    generated = generate(
        RunnerTarget(target, 64, B) if is_fed else FakeTarget(target),
        SpecConfig("fake", shape=shape_of(case["shape"]), children=case["children"], rule=case["rule"]),
        case["prompt"],
        SamplingParams(**params),
        case["seed"],
        case["max_new"],
        case["eos"],
        choice=case["choice"],
        proposer=FedProposer(proposer) if is_fed else LoneFakeProposer(proposer),
    )
    assert generated.tokens == case["tokens"]
    assert generated.stats.drafted == case["drafted"]
    assert generated.stats.accepted == case["accepted"]
    np.testing.assert_allclose(generated.logprobs, case["logprobs"], rtol=1e-9)


class Prompter:
    """Proposes what it was told will be said before other tokens, but for every fifth time."""

    def __init__(self, text, vocab):
        self.text, self.vocab = text, vocab

    def begin(self, prompt, output, params):
        self.at = len(output)

    def laws(self, tokens, parents, frontier):
        laws = []
        for node in frontier:
            at = self.at
            while node >= 0:
                node, at = parents[node], at + 1  # noqa: PLW2901
            law = np.random.default_rng(at).random(self.vocab)
            law[self.text[at % len(self.text)]] = 2.0 if at % 5 else 0.0
            laws.append(law / law.sum())
        return np.array(laws)


@pytest.mark.parametrize("temperature", [0.0, 0.5])
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_llama_says_by_trees_what_it_says_by_itself(kernel, temperature):
    model = build_llama(*tiny_llama(2), kernel=kernel)
    prompt = np.random.default_rng(0).integers(0, 97, 9).tolist()
    params = SamplingParams(temperature=temperature)

    def run(cfg, proposer=None):
        return generate(RunnerTarget(model, 16, B), cfg, prompt, params, 5, 40, (), verify="match", proposer=proposer)

    plain = run(SpecConfig.parse("none", 1))
    trees = run(SpecConfig("fake", shape=Expansion((3, 2, 1, 1)), rule="match"), Prompter(plain.tokens, 97))
    assert (trees.tokens, trees.logprobs) == (plain.tokens, plain.logprobs)
    assert trees.stats.accepted > 15
    assert trees.stats.target_calls < 25
