"""A model is asked for drafts where they are worth what they cost, and text is taken where it promises more."""

import asyncio

import pytest

from actors import RequestError
from actors.messages import Propose, Step
from models import FakeProposer, FakeTarget
from scheduler import PassCost
from scheduler.adaptive import DraftTime, Prices
from spec import SamplingParams, SpecConfig, SpecError, generate
from tests.actors.harness import GREEDY, assert_all_back, engine, fake, read_all, request, run

CHEAP = PassCost.linear(1.0, 0.05, 0.01)
DEAR = PassCost.linear(1.0, 0.05, 3.0)
MODEL = SpecConfig("fake", 3, rule="match")
HYBRID = SpecConfig("hybrid", 6, rule="match", head_k=2)
MATCHED = SamplingParams(temperature=0.8)


def proposer(target, mix=1.0):
    return FakeProposer(target, seed=5, order=2, sharp=3.0, mix=mix)


def as_long_as(cost):
    """Passes and drafts that take in virtual time what they are said to."""

    async def run_pass(work, num_tokens, num_layers=0):
        seconds = num_layers * cost.layer_s if num_layers else cost.of(num_tokens)[-1]
        await asyncio.sleep(seconds)
        return work()

    return run_pass


def texts(cost, speculative, requests, mix=1.0):
    """What clients saw, how often a model was asked and how many passes there were, and the counters."""

    async def main():
        target = fake()
        async with engine(
            target,
            speculative=speculative,
            proposer=proposer(target, mix),
            pass_cost=cost,
            adaptive=True,
            run_pass=as_long_as(cost or CHEAP),
        ) as running:
            seen = await read_all([running.submit(each) for each in requests])
            assert_all_back(running)
            log = running._scheduler._tap
            return seen, len(log.of(Propose)), len(log.of(Step)), running.stats().counters

    return run(main())


def long(first=1, **changes):
    return request([first, 2, 3], **{"params": GREEDY, "max_tokens": 120, **changes})


def plain(each):
    return generate(
        FakeTarget(fake()), SpecConfig.parse("none", 1), each.prompt, each.params, each.seed, 120, ()
    ).tokens


def test_a_model_that_is_right_and_cheap_is_asked_every_round():
    seen, num_asked, num_passes, counters = texts(CHEAP, MODEL, [long()])
    assert seen[0].tokens == plain(long())
    assert num_asked >= num_passes - 2
    assert counters.num_accepted > 80


def test_a_model_that_costs_more_than_it_brings_is_asked_once_in_a_while():
    seen, num_asked, num_passes, _ = texts(DEAR, MODEL, [long()])
    assert seen[0].tokens == plain(long())
    assert num_passes // 32 <= num_asked <= 3 + num_passes / 32


def test_a_model_that_is_wrong_is_given_up_though_it_is_cheap():
    cost = PassCost.linear(1.0, 0.05, 0.2)
    shares = []
    for mix in (1.0, 0.0):
        _, num_asked, num_passes, _ = texts(cost, MODEL, [long()], mix=mix)
        shares.append(num_asked / num_passes)
    assert shares[0] > 0.9
    assert shares[1] < 0.3


def test_a_draft_step_is_shared_by_those_it_is_made_for():
    cost = PassCost.linear(1.0, 0.0, 0.8, 0.01)
    time = DraftTime(cost)
    assert Prices(cost, 4, time).draft(2) == pytest.approx(4 * 2 * (0.8 + 0.01)), "what was measured beforehand"
    time.learn(3.6, 3, 4)
    assert Prices(cost, 4, time).draft(2) == pytest.approx(4 * 2 * 1.2 / 4), "what it took, shared by four"


def test_a_chain_gains_what_its_tokens_promise_over_the_price_of_their_rows():
    cost = PassCost.linear(1.0, 0.1)
    prices = Prices(cost, 2, DraftTime(cost))
    assert prices.row == pytest.approx(0.1 * 2 / 1.2)
    assert prices.gain([0.9, 0.5, 0.1]) == pytest.approx(0.9 + 0.5 - 2 * prices.row)


@pytest.mark.parametrize("params", [GREEDY, MATCHED])
@pytest.mark.parametrize("cost", [None, CHEAP, DEAR])
def test_text_and_heads_together_change_no_text(cost, params):
    asked = [long(1 + i % 3, seed=i, params=params) for i in range(4)]
    seen, num_asked, _, counters = texts(cost, HYBRID, asked, mix=0.8)
    assert [one.tokens for one in seen] == [plain(each) for each in asked]
    assert num_asked > 0
    assert counters.num_accepted > 0


def test_the_model_is_not_asked_where_text_promises_more():
    """Where a cycle of five repeats itself text gives five tokens a round, the model two at the most."""
    repeating = request([1, 2, 3, 4] * 12, params=GREEDY, max_tokens=60)

    async def main():
        target = fake(order=1, sharp=60.0)
        async with engine(
            target, speculative=HYBRID, proposer=proposer(target), pass_cost=CHEAP, adaptive=True
        ) as running:
            seen = await read_all([running.submit(repeating)])
            return seen, len(running._scheduler._tap.of(Propose)), running.stats().counters

    _, num_asked, counters = run(main())
    assert counters.rounds_by_drafted[5] > 3
    assert num_asked < counters.num_rounds - counters.rounds_by_drafted[5] + 2


def test_a_request_may_not_name_another_model_than_the_engines():
    async def main():
        target = fake()
        async with engine(target, speculative=HYBRID, proposer=proposer(target)) as running:
            for other in (SpecConfig("eagle", 2), SpecConfig("hybrid", 6, rule="match", model="x")):
                with pytest.raises(RequestError, match=r"speculative has draft .*: this engine drafts with 'hybrid'"):
                    running.submit(request([1], speculative=other))
            await read_all([running.submit(request([1], speculative=SpecConfig.parse("ngram", 3)))])

    run(main())


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"rule": "resample"}, "rule is 'resample': 'match' where draft is 'hybrid'"),
        ({"head_k": 7}, r"head_k is 7: at most k \(6\)"),
        ({"draft": "linear", "head_k": 2}, "head_k is 2: 1 where draft is 'linear'"),
        ({"draft": "ngram", "model": "x", "head_k": 1}, "model is 'x': '' where draft is 'ngram'"),
        ({"model": 3}, "model is 3: a path"),
    ],
)
def test_what_a_hybrid_may_be(fields, words):
    with pytest.raises(SpecError, match=words):
        SpecConfig(**{"draft": "hybrid", "k": 6, "rule": "match", "head_k": 2, **fields})
