"""How speculation changed what clients saw: the text, its end, its log-probabilities, its counts."""

import pytest

from actors import RequestError
from actors.messages import Step
from models import ReplayModel
from spec import SamplingParams, SpecConfig, propose
from tests.actors.harness import (
    GREEDY,
    SAMPLED,
    assert_all_back,
    engine,
    expected,
    fake,
    lookup,
    prompts,
    read,
    read_all,
    request,
    run,
)

NONE = SpecConfig.parse("none", 1)
KINDS = ["ngram", "prompt_lookup"]
#   the prompt holds the text, so that lookup drafts it whole
TEXT = [10, 11, 30, 20, 21, 22]
HOLDS_TEXT = [1, 2, *TEXT, 1, 2]


def drafted(draft, k):
    return SpecConfig.parse(draft, k) if k else NONE


def serve(wanted, model=None, **changes):
    """What one client sees of one request in an engine of its own, and the engine when it is done."""

    async def main():
        async with engine(model() if model else None, **changes) as running:
            stream = running.submit(wanted)
            seen = await read(stream)
            assert_all_back(running)
        return seen, running

    return run(main())


def reciting(text, prompt=tuple(HOLDS_TEXT)):
    return lambda: ReplayModel([(list(prompt), text)], 32, 0)


@pytest.mark.parametrize("draft", KINDS)
@pytest.mark.parametrize("block_tokens", [4, 16])
def test_one_word_over_and_over(draft, block_tokens):
    """Very repetitive prompts, where drafts are long and nearly always taken, came out changed."""
    wanted = request([2] * 48, max_tokens=60)
    seen, running = serve(wanted, speculative=SpecConfig.parse(draft, 4), block_tokens=block_tokens)
    plain, _ = serve(wanted, speculative=NONE)
    assert seen == plain == expected(wanted, running.config)
    assert running.stats().counters.num_accepted > 0


@pytest.mark.parametrize("num_right", range(5))
def test_after_a_partly_accepted_draft_the_next_row_is_that_of_a_fresh_pass(num_right):
    """The cache stood at a wrong position when some of the draft had been accepted."""
    text = [*TEXT[:num_right], 29, 28, 27]
    seen, running = serve(request(HOLDS_TEXT, max_tokens=len(text)), reciting(text))
    assert seen.tokens == text
    starts = [step.feeds[0].start for step in running._scheduler._tap.of(Step)]
    assert starts[:2] == [0, len(HOLDS_TEXT) + num_right]
    assert running.stats().counters.rounds_by_accepted[num_right] >= 1


@pytest.mark.parametrize("k", range(1, 5))
def test_the_first_drafted_token_is_checked(k):
    """The first token of a draft was taken for granted."""
    model = reciting([2, 3, 4], prompt=(1, 1, 1))
    seen, running = serve(request([1, 1, 1], max_tokens=3), model, speculative=lookup(k))
    assert seen.tokens == [2, 3, 4]
    assert running.stats().counters.num_drafted > running.stats().counters.num_accepted == 0


@pytest.mark.parametrize("draft", KINDS)
def test_exact_ties_go_the_same_way_with_and_without_drafts(draft):
    """All logits equal: ties were broken differently by draft and target."""
    wanted = request([1, 1, 1], max_tokens=20)
    for k in range(1, 9):
        seen, _ = serve(wanted, lambda: fake(sharp=0.0), speculative=SpecConfig.parse(draft, k))
        assert seen.tokens == [0] * 20


@pytest.mark.parametrize("draft", KINDS)
@pytest.mark.parametrize("k", [1, 3, 8])
def test_penalties_have_their_effect_with_drafts(draft, k):
    """With speculation on, penalties were dropped in silence."""
    texts = {}
    for penalty in (-2.0, 2.0):
        wanted = request(max_tokens=24, params=SamplingParams(temperature=0, frequency_penalty=penalty))
        seen, running = serve(wanted, speculative=SpecConfig.parse(draft, k))
        plain, _ = serve(wanted, speculative=NONE)
        assert seen == plain == expected(wanted, running.config)
        texts[penalty] = seen.tokens
    assert texts[-2.0] != texts[2.0]


def test_penalties_see_the_delivered_tokens_and_nothing_of_rejected_drafts():
    """Rejected drafts stayed in the penalty counts, or only the last accepted token entered them."""
    wanted = request(max_tokens=30, params=SamplingParams(temperature=0.9, frequency_penalty=0.5))
    seen, running = serve(wanted, speculative=lookup(4))
    assert running.stats().counters.num_drafted > running.stats().counters.num_accepted > 0
    ctx = wanted.prompt + seen.tokens
    for step in running._scheduler._tap.of(Step):
        (feed,) = step.feeds
        num_out = feed.start + len(feed.ids) - len(feed.round.draft) - len(wanted.prompt)
        assert list(feed.round.prompt) == wanted.prompt
        assert list(feed.round.output) == seen.tokens[:num_out]
        assert feed.ids[: len(feed.ids) - len(feed.round.draft)] == ctx[feed.start : len(wanted.prompt) + num_out]


@pytest.mark.parametrize("min_tokens", range(8))
def test_min_tokens_counts_tokens_and_not_steps(min_tokens):
    """Several tokens a step, and the minimum was counted in steps."""
    params = SamplingParams(temperature=0, min_tokens=min_tokens)
    wanted = request([3, 1, 2, 3, 1, 2], params=params, max_tokens=12, eos=(0, 1, 2, 3))
    lengths = set()
    for k in range(9):
        seen, running = serve(wanted, speculative=drafted("prompt_lookup", k))
        assert seen == expected(wanted, running.config)
        lengths.add(len(seen.tokens))
    assert len(lengths) == 1
    assert min(lengths) >= min_tokens


@pytest.mark.parametrize("k", range(9))
def test_an_eos_inside_an_accepted_run_ends_the_text(k):
    """Drafts `10 11 eos 20`, all accepted: tokens after the end reached the client."""
    wanted = request(HOLDS_TEXT, max_tokens=20, eos=(30,))
    seen, running = serve(wanted, reciting(TEXT), speculative=drafted("prompt_lookup", k))
    assert (seen.tokens, seen.reason, len(seen.logprobs)) == ([10, 11, 30], "stop", 3)
    assert running.stats().counters.num_emitted_tokens == 3


@pytest.mark.parametrize("k", range(9))
@pytest.mark.parametrize(("max_tokens", "length", "reason"), [(5, 3, "stop"), (3, 3, "stop"), (2, 2, "length")])
def test_a_stop_id_is_seen_before_the_length(k, max_tokens, length, reason):
    """The cap was tested first: the wrong reason, and tokens leaked."""
    params = SamplingParams(temperature=0, stop_token_ids=(30,))
    wanted = request(HOLDS_TEXT, max_tokens=max_tokens, params=params)
    seen, running = serve(wanted, reciting(TEXT), speculative=drafted("prompt_lookup", k))
    assert (seen.tokens, seen.reason) == (TEXT[:length], reason)
    assert running.stats().counters.num_finished[reason] == 1


@pytest.mark.parametrize("params", [GREEDY, SAMPLED, SamplingParams(temperature=0.6, top_k=3, logit_bias={2: 2.0})])
@pytest.mark.parametrize("verify", ["resample", "match"])
def test_every_token_has_the_logprob_of_the_plain_run(params, verify):
    """Log-probabilities were zero, missing, or read off modified logits for accepted drafts."""
    wanted = request(params=params, max_tokens=30, verify=verify)
    seen, running = serve(wanted, speculative=lookup(4))
    assert seen == expected(wanted, running.config)
    assert len(seen.logprobs) == len(seen.tokens) == 30
    if params is GREEDY or verify == "match":
        assert seen == serve(wanted, speculative=NONE)[0]


def test_a_round_without_a_draft_draws_as_often_as_plain_sampling():
    """Rounds that found no draft moved the generator of a seeded request."""
    wanted = request([0, 1, 2, 3, 4, 5, 6], params=SamplingParams(), seed=8, max_tokens=3)
    seen, running = serve(wanted, speculative=SpecConfig("prompt_lookup", 4, max_ngram=6, min_ngram=6))
    assert running.stats().counters.num_drafted == 0
    assert seen == serve(wanted, speculative=NONE)[0]


LIMIT = 16


@pytest.mark.parametrize("draft", ["none", *KINDS])
@pytest.mark.parametrize("length", [1, LIMIT - 3, LIMIT - 1, LIMIT])
@pytest.mark.parametrize("is_the_models_limit", [False, True])
def test_drafts_do_not_run_past_the_length_limit(draft, length, is_the_models_limit):
    """A crash where drafts ran past the limit; prompt and text together may be as long as it, and one token more."""
    limits = {"max_model_len": 200 if is_the_models_limit else LIMIT}
    model = lambda: fake(max_model_len=LIMIT if is_the_models_limit else 1 << 20)  # noqa: E731
    prompt = ([3, 1, 2] * LIMIT)[:length]
    for max_tokens in {1, LIMIT - length, LIMIT - length + 1, LIMIT - length + 2, 60} - {0}:
        wanted = request(prompt, max_tokens=max_tokens)
        seen, running = serve(wanted, model, speculative=SpecConfig.parse(draft, 10), **limits)
        assert (len(seen.tokens), seen.reason) == (min(max_tokens, LIMIT - length + 1), "length")
        assert seen == expected(wanted, running.config, model())
        for step in running._scheduler._tap.of(Step):
            assert all(feed.start + len(feed.ids) <= LIMIT for feed in step.feeds)


def test_a_prompt_past_the_limit_is_refused():
    with pytest.raises(RequestError, match="max_model_len"):
        serve(request([1] * (LIMIT + 1)), max_model_len=LIMIT)


def rounds_of(running, seq):
    """Per round of a sequence, how many of its tokens were known, and the draft."""
    feeds = [feed for step in running._scheduler._tap.of(Step) for feed in step.feeds if feed.seq == seq and feed.round]
    return [(feed.start + len(feed.ids) - len(feed.round.draft), feed.round.draft) for feed in feeds]


def test_a_prompt_from_the_prefix_cache_is_drafted_from_all_the_same():
    """The drafter saw only what was fed: with the prompt cached, acceptance fell to nothing."""
    wanted = request([*range(8), *range(8), 0, 1], max_tokens=20)

    async def main(prefix_cache):
        async with engine(prefix_cache=prefix_cache) as running:
            for _ in range(2):
                stream = running.submit(wanted)
                await read(stream)
            return rounds_of(running, stream.seq), stream.num_cached_tokens

    (rounds, num_cached), (rounds_without, none_cached) = run(main(True)), run(main(False))
    assert (num_cached, none_cached) == (16, 0)
    assert rounds == rounds_without
    assert any(draft for _, draft in rounds)


def test_each_row_of_a_mixed_batch_gets_its_own_draft():
    """Drafts landed under the wrong row where a neighbour was still in prefill."""

    async def main():
        cfg = lookup(3)
        async with engine(max_batch_tokens=16, speculative=cfg) as running:
            wanted = [
                request([1, 2, 3, 1, 2], max_tokens=20),
                request([t % 7 for t in range(60)], max_tokens=6, priority=1),
                request([5, 6, 5, 6, 5], max_tokens=20),
            ]
            seen = await read_all([running.submit(wants) for wants in wanted])
            assert seen == [expected(wants, running.config) for wants in wanted]
            steps = running._scheduler._tap.of(Step)
            assert any(sorted(feed.round is not None for feed in step.feeds) == [False, True, True] for step in steps)
            for seq, wants in enumerate(wanted):
                ctx = wants.prompt + seen[seq].tokens
                for num_known, draft in rounds_of(running, seq):
                    own = propose(cfg, ctx[:num_known], len(wants.prompt) + wants.max_tokens - num_known - 1)
                    assert draft == own[:3] or (seq == 1 and not draft)

    run(main())


def test_drafts_come_from_the_requests_own_tokens():
    """An index kept by slot outlived its request: the next one was drafted from another client's text."""

    async def main():
        async with engine(max_running=1) as running:
            await read(running.submit(request([1, 2, 3, 4, 5, 6] * 10, max_tokens=40)))
            short = running.submit(request([1, 2, 3], max_tokens=4))
            seen = await read(short)
            ctx = [1, 2, 3, *seen.tokens]
            rounds = rounds_of(running, short.seq)
            assert rounds[0] == (3, [])
            for num_known, draft in rounds:
                assert draft == propose(lookup(), ctx[:num_known], 7 - num_known - 1)

    run(main())


@pytest.mark.parametrize("k", range(9))
def test_all_the_tokens_of_a_step_reach_the_client_and_nothing_is_counted_that_does_not(k):
    """With several tokens a step only the last was streamed; a round past max_tokens counted the whole budget."""
    for max_tokens in range(1, 8):
        wanted = request(HOLDS_TEXT, max_tokens=max_tokens)
        seen, running = serve(wanted, reciting([*TEXT, 1, 2]), speculative=drafted("prompt_lookup", k))
        assert seen.tokens == [*TEXT, 1, 2][:max_tokens]
        counters = running.stats().counters
        assert counters.num_emitted_tokens == max_tokens
        assert counters.num_accepted + counters.num_rounds == max_tokens, "a bonus token for each pass"


def test_the_accept_rate_does_not_count_the_bonus_token_or_what_was_cut():
    """0 of 3 accepted is 0; and what lay behind an eos was never delivered."""
    _, running = serve(request([1, 1, 1, 1], max_tokens=4), reciting([2, 3, 4, 5], (1, 1, 1, 1)), speculative=lookup(3))
    counters = running.stats().counters
    assert counters.num_drafted > counters.num_accepted == 0
    _, running = serve(request(HOLDS_TEXT, max_tokens=9, eos=(11,)), reciting(TEXT), speculative=lookup(5))
    counters = running.stats().counters
    assert (counters.num_drafted, counters.num_accepted) == (5, 2)
    assert counters.accepted_by_position[:3] == [1, 1, 0]


def test_texts_of_many_prompts_do_not_depend_on_drafts_in_company():
    async def main(speculative):
        async with engine(num_blocks=30, speculative=speculative) as running:
            wanted = [request(p, max_tokens=30) for p in prompts(8)]
            return await read_all([running.submit(wants) for wants in wanted])

    plain = run(main(NONE))
    for draft in KINDS:
        assert run(main(SpecConfig.parse(draft, 6))) == plain
