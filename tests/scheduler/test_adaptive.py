"""Rows go where they are expected to gain most, and nowhere where none pays."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors import Engine, EngineConfig, Request, RequestError
from models import FakeModel, FakeTarget
from scheduler import PassCost
from scheduler.adaptive import Acceptance, share_rows
from spec import SamplingParams, SpecConfig, generate


def test_free_rows_are_all_given():
    cost = PassCost.linear(1.0, 1e-9)
    assert share_rows(cost, 2, 2, [[0.9, 0.8], [0.1]]) == [2, 1]


def test_no_row_is_given_where_rows_cost_as_much_as_passes():
    cost = PassCost((1, 2), (1.0, 2.0))
    assert share_rows(cost, 1, 1, [[0.99, 0.98]]) == [0]


def test_the_likelier_draft_gets_the_rows():
    cost = PassCost.linear(4.0, 1.0)
    assert share_rows(cost, 2, 2, [[0.95, 0.9, 0.86], [0.05, 0.01, 0.0]]) == [3, 0]


@given(
    st.floats(0.1, 20),
    st.floats(0.01, 5),
    st.lists(st.lists(st.floats(0, 1), max_size=4).map(lambda c: sorted(c, reverse=True)), min_size=1, max_size=3),
)
def test_no_other_shares_are_expected_to_be_faster(overhead, per_row, chances):
    cost = PassCost.linear(overhead, per_row)
    n = len(chances)

    def speed(shares):
        expected = n + sum(sum(c[:share]) for c, share in zip(chances, shares, strict=True))
        return expected / (overhead + per_row * (n + sum(shares)))

    def every(i):
        return [[]] if i == n else [[s, *rest] for s in range(len(chances[i]) + 1) for rest in every(i + 1)]

    shares = share_rows(cost, n, n, chances)
    assert speed(shares) >= max(map(speed, every(0))) * (1 - 1e-9)


def test_a_cost_is_linear_between_its_points_and_past_the_last():
    assert PassCost((1, 3, 5), (1.0, 2.0, 6.0)).of(7) == pytest.approx([1.0, 1.0, 1.5, 2.0, 4.0, 6.0, 8.0, 10.0])


@pytest.mark.parametrize(
    ("rows", "seconds"), [((1,), (1.0,)), ((2, 1), (1.0, 2.0)), ((1, 2), (1.0, 0.0)), ((1, 2), (1.0,))]
)
def test_a_cost_that_cannot_be_is_refused(rows, seconds):
    with pytest.raises(RequestError, match=r"num_rows|seconds"):
        PassCost(rows, seconds)


def test_what_was_proposed_is_learned_from_whether_it_was_fed_or_not():
    of_all = Acceptance()
    acceptance = Acceptance(of_all)
    before = acceptance.first(3)
    for _ in range(40):
        acceptance.learn(3, [5, 6, 7], [5, 6, 9])
    assert acceptance.first(3) > 0.95
    assert acceptance.later(3) == pytest.approx(0.5, abs=0.06)
    assert acceptance.first(1) == of_all.first(1) == before
    assert Acceptance(of_all).first(3) > 0.95
    for _ in range(40):
        acceptance.learn(3, [5], [8])
    assert acceptance.first(3) < 0.05


def run(request, speculative, pass_cost, *, adaptive=True):
    async def main():
        async def inline(work, num_tokens):
            del num_tokens
            await asyncio.sleep(0)
            return work()

        config = EngineConfig(num_blocks=64, block_tokens=4, speculative=speculative, adaptive=adaptive)
        async with Engine(FakeModel(5, 12, 2, 9.0), config, run_pass=inline, pass_cost=pass_cost) as engine:
            stream = engine.submit(request)
            tokens = [token.id async for token in stream]
            return tokens, engine.stats().counters

    return asyncio.run(main())


K4 = SpecConfig.parse("prompt_lookup", 4)
HOPELESS = PassCost((1, 2), (1.0, 3.0))


@pytest.mark.parametrize("params", [SamplingParams(temperature=0), SamplingParams(temperature=0.8)])
def test_an_adaptive_engine_gives_the_text_of_the_one_sequence_loop(params):
    request = Request(prompt=[1, 2, 3, 1, 2, 3], params=params, max_tokens=60, seed=4, verify="match")
    tokens, counters = run(request, K4, PassCost.linear(1.0, 0.4))
    reference = generate(FakeTarget(FakeModel(5, 12, 2, 9.0)), K4, request.prompt, params, 4, 60, (), verify="match")
    assert tokens == reference.tokens
    assert counters.num_drafted < reference.stats.drafted


def test_rows_that_never_pay_are_fed_in_the_first_round_at_most():
    request = Request(prompt=[1, 2, 3, 1, 2, 3], params=SamplingParams(temperature=0), max_tokens=60)
    assert run(request, K4, HOPELESS)[1].num_drafted <= 4
    assert run(request, K4, HOPELESS, adaptive=False)[1].num_drafted > 40


def test_a_round_whose_text_depends_on_its_draft_is_never_cut():
    request = Request(prompt=[1, 2, 3, 1, 2, 3], params=SamplingParams(temperature=0.8), max_tokens=60, seed=4)
    tokens, counters = run(request, K4, HOPELESS)
    reference = generate(FakeTarget(FakeModel(5, 12, 2, 9.0)), K4, request.prompt, request.params, 4, 60, ())
    assert tokens == reference.tokens
    assert counters.num_drafted == reference.stats.drafted
