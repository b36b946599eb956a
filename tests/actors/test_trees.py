"""Drafts that a model makes, trees among them: through the engine a client sees what the one-sequence loop gives."""

import copy

import pytest

from actors import RequestError
from actors.messages import Propose, Proposed, Step
from models import FakeProposer, FakeTarget, LoneFakeProposer
from scheduler import PassCost
from spec import BestFirst, Chain, Dynamic, Expansion, SamplingParams, Sequoia, SpecConfig, Static, generate
from tests.actors.harness import (
    GREEDY,
    SAMPLED,
    Log,
    Seen,
    assert_all_back,
    engine,
    fake,
    lasting,
    read_all,
    request,
    run,
)

PENALISED = SamplingParams(temperature=0.9, repetition_penalty=1.3, frequency_penalty=0.5, min_tokens=4, top_k=5)
SHAPES = {
    "chain": Chain(3),
    "p_min": Chain(4, 0.3),
    "expansion": Expansion((2, 2, 1)),
    "static": Static(((0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (0, 0, 0))),
    "sequoia": Sequoia((0.6, 0.2, 0.1), 9, 4),
    "dynamic": Dynamic(8, 3, 3),
    "best_first": BestFirst(7, 0.05),
}
CONFIGS = [
    pytest.param(SpecConfig("fake", shape=shape, children=children, rule=rule), id=f"{name}-{children}-{rule}")
    for name, shape in SHAPES.items()
    for children, rule in (
        ("top", "match"),
        ("top", "resample"),
        *(
            ()
            if name in ("p_min", "dynamic", "best_first")
            else (("iid", "resample"), ("distinct", "resample"), ("iid", "traversal"), ("distinct", "traversal"))
        ),
    )
]


def proposer(target, mix=0.8):
    return FakeProposer(target, seed=5, order=2, sharp=3.0, mix=mix)


def alone(request, config, target):
    result = generate(
        FakeTarget(target),
        config,
        request.prompt,
        request.params,
        request.seed,
        request.max_tokens,
        request.eos,
        choice=request.choice,
        verify=request.verify,
        proposer=LoneFakeProposer(proposer(target)),
    )
    return Seen(result.tokens, result.logprobs, result.finish_reason)


def requests():
    params = [GREEDY, SAMPLED, PENALISED]
    return [
        request([1, 2, 3, 1, 2, i % 4], params=params[i % 3], max_tokens=14 + i, seed=i, choice=i % 2, eos=(7,))
        for i in range(7)
    ]


@pytest.mark.parametrize("speculative", CONFIGS)
@pytest.mark.parametrize("tight", [False, True])
def test_every_configuration_gives_the_text_of_the_one_sequence_loop(speculative, tight):
    """With few blocks there are preemptions, with small passes prompts are fed in chunks."""
    changes = {"num_blocks": 18, "max_batch_tokens": 28} if tight else {}

    async def main():
        target = fake()
        async with engine(target, speculative=speculative, proposer=proposer(target), **changes) as running:
            seen = await read_all([running.submit(each) for each in requests()])
            assert_all_back(running)
            return seen, running.stats().counters, running._scheduler._tap

    seen, counters, log = run(main())
    assert seen == [alone(each, speculative, fake()) for each in requests()]
    assert counters.num_accepted > 0
    assert max(i for i, n in enumerate(counters.rounds_by_depth) if n) <= speculative.tree_shape.max_depth
    assert len(log.of(Propose)) == len(log.of(Proposed)) <= len(log.of(Step))


DYNAMIC = SpecConfig("fake", shape=Dynamic(8, 3, 3), rule="match")
DRAWN = SpecConfig("fake", shape=Expansion((2, 2)), children="distinct")


def test_a_prefix_hit_brings_the_proposers_state():
    """The second request finds its context cached, for the target and for the proposer, and drafts as the first did."""
    prompt = [1, 2, 3, 4] * 8

    async def main():
        target = fake()
        async with engine(target, speculative=DYNAMIC, proposer=proposer(target)) as running:
            seen, cached = [], []
            for _ in range(2):
                stream = running.submit(request(prompt, max_tokens=16))
                seen += await read_all([stream])
                cached.append(stream.num_cached_tokens)
            assert running.stats().counters.num_failed_proposals == 0
            asks = [ask for message in running._scheduler._tap.of(Propose) for ask in message.asks]
            return seen, cached, [(ask.seq, ask.start) for ask in asks]

    seen, cached, starts = run(main())
    assert seen == [alone(request(prompt, max_tokens=16), DYNAMIC, fake())] * 2
    assert cached == [0, 28]
    firsts = dict(reversed(starts))
    assert firsts == {0: 31, 1: 31}, "prefill was fed to the proposer beside the target, and a hit is not fed again"


def test_what_no_proposer_was_fed_is_found_by_none():
    """A request without a model's drafts shares with its like, not with those whose proposer needs the state."""
    prompt = [1, 2, 3, 4] * 8

    async def main():
        target = fake()
        async with engine(target, speculative=DYNAMIC, proposer=proposer(target)) as running:
            cached = []
            for speculative in (SpecConfig.parse("none", 1), DYNAMIC, SpecConfig.parse("prompt_lookup", 2), DYNAMIC):
                stream = running.submit(request(prompt, max_tokens=4, speculative=speculative))
                await read_all([stream])
                cached.append(stream.num_cached_tokens)
            return cached

    assert run(main()) == [0, 0, 28, 28]


class Failing:
    """A proposer that raises at every `nth` question."""

    def __init__(self, proposer, nth, failed):
        self.proposer, self.nth, self.failed, self.num = proposer, nth, failed, 0

    def __getattr__(self, name):
        return getattr(self.proposer, name)

    def __copy__(self):
        return Failing(copy.copy(self.proposer), self.nth, self.failed)

    def laws(self, asks):
        self.num += 1
        if self.num % self.nth == 0:
            self.failed.append(len(asks))
            raise RuntimeError("the proposer fails")
        return self.proposer.laws(asks)

    def feed(self, chunks):
        self.num += 1
        if self.num % self.nth == 0:
            self.failed.append(len(chunks))
            raise RuntimeError("the proposer fails")
        self.proposer.feed(chunks)


@pytest.mark.parametrize("nth", [1, 2, 3, 7])
def test_a_proposer_that_fails_costs_speed_and_never_text(nth):
    failed = []

    async def main():
        target = fake()
        failing = Failing(proposer(target), nth, failed)
        async with engine(target, speculative=DYNAMIC, proposer=failing, max_batch_tokens=28) as running:
            seen = await read_all([running.submit(each) for each in requests()])
            assert_all_back(running)
            counters = running.stats().counters
            assert (counters.num_restarts, counters.num_failed_proposals) == (0, len(failed))
            return seen

    assert run(main()) == [alone(each, DYNAMIC, fake()) for each in requests()]
    assert failed


def test_a_draft_that_the_text_depends_on_is_made_again():
    """The runner starts over, and all is computed again, from where the generators stood."""
    failed = []

    async def main():
        target = fake()
        failing = Failing(proposer(target), 5, failed)
        async with engine(target, speculative=DRAWN, proposer=failing, max_restarts=1000) as running:
            seen = await read_all([running.submit(each) for each in requests()])
            assert_all_back(running)
            return seen, running.stats().counters.num_restarts

    seen, num_restarts = run(main())
    assert seen == [alone(each, DRAWN, fake()) for each in requests()]
    assert 0 < num_restarts <= len(failed)


@pytest.mark.parametrize("message", [Propose, Proposed, Step])
@pytest.mark.parametrize("speculative", [DYNAMIC, DRAWN])
def test_a_client_may_leave_around_a_proposal(message, speculative):
    """Who leaves holds nothing then; those who stay see what they see alone."""

    async def main():
        target = fake()
        left = []

        class Leaving(Log):
            def __call__(self, time_s, sender, receiver, sent):
                super().__call__(time_s, sender, receiver, sent)
                if isinstance(sent, message) and len(self.of(message)) == 3:
                    left.append(streams[0].num_emitted)
                    streams[0].leave()

        tap = Leaving()
        async with engine(
            target, speculative=speculative, proposer=proposer(target), tap=tap, run_pass=lasting
        ) as running:
            streams = [running.submit(each) for each in requests()]
            seen = await read_all(streams[1:])
            await streams[0].cancel()
            assert_all_back(running)
            return seen, left

    seen, left = run(main())
    assert len(left) == 1
    assert seen == [alone(each, speculative, fake()) for each in requests()[1:]]


def test_adaptive_feeds_the_nodes_that_pay():
    """Rows that cost as much as a pass are not worth a node; rows that cost nothing are worth all of them."""

    def num_fed(cost):
        async def main():
            target = fake()
            changes = {"speculative": DYNAMIC, "proposer": proposer(target, 0.6), "pass_cost": cost}
            async with engine(target, **changes) as running:
                seen = await read_all([running.submit(each) for each in requests()])
                return seen, running.stats().counters

        seen, counters = run(main())
        assert seen == [alone(each, DYNAMIC, fake()) for each in requests()]
        return counters.num_drafted / counters.num_rounds, counters.num_emitted_tokens / counters.num_rounds

    free, dear, between = (num_fed(PassCost.linear(*each)) for each in ((1.0, 0.0), (0.001, 1.0), (1.0, 0.15)))
    assert dear[0] == 0
    assert 0 < between[0] < free[0]
    assert between[1] > 1


@pytest.mark.parametrize(
    "speculative",
    [
        SpecConfig("fake", shape=Dynamic("auto", 3, 3), rule="match"),
        SpecConfig("fake", shape=Sequoia((0.6, 0.2, 0.1), "auto", 4), children="distinct"),
    ],
)
def test_as_many_nodes_as_pay_are_found_once_and_told(speculative):
    def found(cost):
        async def main():
            target = fake()
            changes = {"speculative": speculative, "proposer": proposer(target), "pass_cost": cost}
            async with engine(target, max_batch_tokens=128, adaptive=False, **changes) as running:
                seen = await read_all([running.submit(each) for each in requests()])
                return seen, running.config.speculative, running.stats().counters

        seen, config, counters = run(main())
        assert seen == [alone(each, config, fake()) for each in requests()]
        assert max(i for i, count in enumerate(counters.rounds_by_drafted) if count) <= config.k == config.shape.nodes
        return config.k

    free, fair, dear = (found(PassCost.linear(1.0, per_row, 0.01)) for per_row in (0.0, 0.1, 10.0))
    assert dear == 1 < fair < free


def test_as_many_nodes_as_pay_are_refused_where_nobody_can_tell():
    auto = SpecConfig("fake", shape=Dynamic("auto", 3, 3), rule="match")
    with pytest.raises(RequestError, match=r"shape\.nodes is 'auto': a number where what a pass costs is not known"):
        engine(speculative=auto, proposer=proposer(fake()))

    async def main():
        async with engine(speculative=DYNAMIC, proposer=proposer(fake())) as running:
            with pytest.raises(RequestError, match=r"shape\.nodes is 'auto': a number, except"):
                running.submit(request(speculative=auto))

    run(main())


def test_a_draft_that_needs_a_proposer_is_refused_where_there_is_none():
    with pytest.raises(RequestError, match="speculative has draft 'fake': this engine has no proposer"):
        engine(speculative=DYNAMIC)

    async def main():
        async with engine() as running:
            with pytest.raises(RequestError, match="'fake': this engine has no proposer"):
                running.submit(request(speculative=DYNAMIC))

    run(main())


def test_a_tree_that_the_pool_cannot_hold_whole_is_refused_and_one_that_may_be_cut_is_not():
    """8 blocks of 4: a context of 31 positions fits; the nodes side by side of a draft that may not be cut do not."""

    async def main():
        target = fake()
        async with engine(target, num_blocks=8, speculative=DRAWN, proposer=proposer(target)) as running:
            fits = request([1] * 20, max_tokens=9, params=SAMPLED)
            too_long = request([1] * 20, max_tokens=10, params=SAMPLED)
            greedy = request([1] * 20, max_tokens=13)
            with pytest.raises(RequestError, match="max_tokens is 10"):
                running.submit(too_long)
            seen = await read_all([running.submit(fits), running.submit(greedy)])
            assert_all_back(running)
            return seen, [fits, greedy]

    seen, asked = run(main())
    assert seen == [alone(each, DRAWN, fake()) for each in asked]


@pytest.mark.parametrize("params", [SAMPLED, PENALISED])
@pytest.mark.parametrize("rule", ["resample", "traversal"])
def test_a_request_for_one_token_needs_no_draft(rule, params):
    speculative = SpecConfig("fake", shape=Expansion((2, 2)), children="iid", rule=rule)
    asked = request(max_tokens=1, params=params)

    async def main():
        target = fake()
        async with engine(target, speculative=speculative, proposer=proposer(target)) as running:
            return await read_all([running.submit(asked)]), len(running._scheduler._tap.of(Propose))

    assert run(main()) == ([alone(asked, speculative, fake())], 0)


@pytest.mark.parametrize("num_more", range(4, 13))
def test_an_answer_that_comes_back_as_a_prompt_finds_the_proposers_state(num_more):
    """The proposer is fed what a round accepted in the next one: a block is shared when both have written it."""
    first = request([1, 2, 3, 4, 1], max_tokens=12)
    answer = alone(first, DYNAMIC, fake()).tokens
    second = request([*first.prompt, *answer[:num_more]], max_tokens=8)

    async def main():
        target = fake()
        async with engine(target, speculative=DYNAMIC, proposer=proposer(target, 1.0)) as running:
            seen = [*await read_all([running.submit(first)]), *await read_all([running.submit(second)])]
            assert_all_back(running)
            counters = running.stats().counters
            return seen, counters.num_failed_proposals, counters.num_cached_tokens

    seen, num_failed, num_cached = run(main())
    assert seen == [alone(each, DYNAMIC, fake()) for each in (first, second)]
    assert num_failed == 0
    assert num_cached > 0


def test_where_the_pool_is_short_a_proposer_loses_its_state_with_the_blocks():
    """Preempted and computed again, in chunks, a draft is what it was: drawn from where its generator stood."""

    async def main():
        target = fake()
        asked = [request([i % 8, 2, 3, 1, i % 5], max_tokens=20, seed=i, params=SAMPLED) for i in range(6)]
        changes = {"num_blocks": 16, "max_batch_tokens": 16}
        async with engine(target, speculative=DRAWN, proposer=proposer(target), **changes) as running:
            seen = await read_all([running.submit(each) for each in asked])
            assert_all_back(running)
            return asked, seen, running.stats().counters

    asked, seen, counters = run(main())
    assert seen == [alone(each, DRAWN, fake()) for each in asked]
    assert counters.num_preemptions > 0
    assert counters.num_restarts == 0
