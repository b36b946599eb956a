"""A model drafts ahead, with a pass for the next, where that is worth it; text is taken where it promises more."""

import asyncio

import pytest

from actors import RequestError
from actors.messages import Propose, Step, StepDone, Submit
from models import FakeProposer, FakeTarget
from models.fake_proposer import LoneFakeProposer
from scheduler import PassCost, Proposal, Sequence
from scheduler.adaptive import Lead, Prices
from spec import BestFirst, Chain, Dynamic, Pcg32, SamplingParams, SpecConfig, SpecError, generate, grow
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
        await asyncio.sleep(num_layers * cost.layer_s + (cost.of(num_tokens)[-1] if num_tokens else 0))
        return work()

    return run_pass


def texts(cost, speculative, requests, mix=1.0):
    """What clients saw, with how many passes a model drafted and how many there were, and the counters."""

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
            steps = log.of(Step)
            assert not log.of(Propose) or cost is None, "nobody waits for a draft that a text can do without"
            num_asked = sum(bool(step.ahead) for step in steps) if cost else len(log.of(Propose))
            return seen, num_asked, len(steps), running.stats().counters

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


def test_a_layer_costs_once_and_something_more_for_each_that_it_is_drafted_for():
    prices = Prices(PassCost.linear(1.0, 0.0, 0.8, 0.01), 4)
    assert prices.layer_row == pytest.approx(4 * 0.01)
    assert prices.layer == pytest.approx(4 * (0.8 - 0.01))
    assert Prices(PassCost.linear(1.0, 0.0, 0.1, 0.3), 4).layer == 0


def test_the_lead_is_learnt_by_what_text_had_before_and_taken_from_all_where_it_is_not_known():
    of_all = Lead(2)
    assert of_all.value(had_text=False) > of_all.value(had_text=True) > 0, "so that the model is tried"
    one, other = Lead(2, of_all), Lead(2, of_all)
    for _ in range(50):
        one.learn(had_text=True, num_tokens=0.0)
        one.learn(had_text=False, num_tokens=0.4)
    assert (other.value(had_text=True), one.value(had_text=True)) == pytest.approx((0, 0), abs=0.05)
    assert (other.value(had_text=False), one.value(had_text=False)) == pytest.approx((0.4, 0.4), abs=0.05)
    other.learn(had_text=False, num_tokens=2.0)
    assert other.value(had_text=False) > one.value(had_text=False)


def test_a_chain_gains_what_its_tokens_promise_over_the_price_of_their_rows():
    cost = PassCost.linear(1.0, 0.1)
    prices = Prices(cost, 2)
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
    cost = PassCost.linear(1.0, 0.05, 0.2)

    async def main():
        target = fake(order=1, sharp=60.0)
        async with engine(
            target, speculative=HYBRID, proposer=proposer(target), pass_cost=cost, adaptive=True
        ) as running:
            seen = await read_all([running.submit(repeating)])
            log = running._scheduler._tap
            return seen, sum(bool(step.ahead) for step in log.of(Step)), running.stats().counters

    _, num_asked, counters = run(main())
    assert counters.rounds_by_drafted[5] > 3
    assert num_asked < counters.num_rounds - counters.rounds_by_drafted[5] + 2


PENALISED = SamplingParams(temperature=0.7, repetition_penalty=1.3, min_tokens=4)


@pytest.mark.parametrize("shape", [Chain(3), Dynamic(6, 3, 3), BestFirst(5, 0.01)], ids=lambda s: type(s).__name__)
def test_what_is_drafted_ahead_is_what_would_be_drafted_after(shape):
    """With few blocks, so that some are preempted; prompts in chunks; one leaves. Laws depend on the whole state."""
    speculative = SpecConfig("fake", shape=shape, rule="match")
    asked = [long(1 + i % 3, seed=i, params=(GREEDY, MATCHED, PENALISED)[i % 3], max_tokens=30 + i) for i in range(6)]

    async def main():
        target = fake()
        async with engine(
            target,
            speculative=speculative,
            proposer=proposer(target, 0.7),
            pass_cost=PassCost.linear(1.0, 0.01, 0.01),
            adaptive=True,
            num_blocks=30,
            max_batch_tokens=40,
        ) as running:
            streams = [running.submit(each) for each in asked]
            async for _ in streams[1]:
                break
            await streams[1].cancel()
            seen = await read_all([*streams[:1], *streams[2:]])
            assert_all_back(running)
            return seen, running._scheduler._tap.messages, running.stats().counters

    seen, messages, counters = run(main())
    wholes = [plain(each)[: each.max_tokens] for each in asked]
    assert [one.tokens for one in seen] == [wholes[0], *wholes[2:]]
    assert counters.num_preemptions > 0
    assert counters.num_failed_proposals == 0
    contexts, requests, num_trees = {}, {}, 0
    for _, _, message in messages:
        if isinstance(message, Submit):
            contexts[message.seq], requests[message.seq] = list(message.request.prompt), message.request
        if isinstance(message, StepDone):
            for outcome in message.outcomes:
                contexts[outcome.seq] += outcome.tokens
            for tree in message.trees:
                one, context, num_trees = requests[tree.seq], contexts[tree.seq], num_trees + 1
                num_left = len(one.prompt) + one.max_tokens - len(context) - 1
                assert (tree.tokens, tree.parents) == drafted(speculative, context, num_left)
    assert num_trees > 60


def drafted(speculative, context, num_left):
    lone = LoneFakeProposer(proposer(fake(), 0.7))
    growth = grow(speculative.model_shape, "top", num_left, Pcg32(0, 0))
    lone.begin(context, [], GREEDY)
    while growth.frontier:
        growth.feed(lone.laws(growth.tokens, growth.parents, growth.frontier))
    tree = growth.result().tree
    return list(tree.tokens), list(tree.parents)


def test_a_draft_made_ahead_is_for_the_next_round_and_no_other():
    sequence = Sequence(0, long(), MODEL, 200, is_adaptive=True)
    sequence.take_ahead(Proposal([5], None, [0.9], 1))
    assert sequence.ahead is not None
    sequence.take([1])
    assert sequence.ahead is None


def test_a_draft_that_fails_beside_a_pass_costs_no_token():
    target = fake()

    class Failing(FakeProposer):
        num_asked = 0

        def laws(self, asks):
            type(self).num_asked += 1
            if type(self).num_asked % 7 == 0:
                raise OSError("out of luck")
            return super().laws(asks)

    async def main():
        async with engine(
            target,
            speculative=MODEL,
            proposer=Failing(target, seed=5, order=2, sharp=3.0, mix=1.0),
            pass_cost=CHEAP,
            adaptive=True,
        ) as running:
            seen = await read_all([running.submit(long(i + 1, seed=i)) for i in range(3)])
            assert_all_back(running)
            return seen, running.stats().counters

    seen, counters = run(main())
    assert [one.tokens for one in seen] == [plain(long(i + 1, seed=i)) for i in range(3)]
    assert counters.num_failed_proposals > 3
    assert counters.num_restarts == 0
    assert counters.num_accepted > 20


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
