"""How engines broke before, told as trials of the one-sequence loop."""

from itertools import pairwise, product

import numpy as np
import pytest

from spec import Drafter, Pcg32, SamplingParams, generate, generate_stream, propose, verify_draft
from tests.spec.targets import ReferenceTarget, config_of, fake_target, scripted_target

GREEDY = SamplingParams(temperature=0)
KINDS = ("ngram", "prompt_lookup")
# The prompt holds the text, so that lookup drafts it whole.
TEXT = [10, 11, 30, 20, 21, 22]
HOLDS_TEXT = [1, 2, *TEXT, 1, 2]


def run(target, draft, k, prompt, params=GREEDY, max_new=24, eos=(), **options):
    target.truncate(0)
    return generate(target, config_of(draft, k), prompt, params, 1, max_new, list(eos), **options)


@pytest.mark.parametrize("draft", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_lossless_on_one_word_repeated(draft, seed):
    target, prompt = fake_target(seed=seed, vocab=6, order=1), [2] * 48
    plain = run(target, "none", 0, prompt, max_new=60)
    speculative = run(target, draft, 4, prompt, max_new=60)
    assert speculative.tokens == plain.tokens
    assert speculative.stats.drafted > 0


@pytest.mark.parametrize("draft", KINDS)
def test_lossless_on_exact_ties(draft):
    """Rows of two values only: nearly every argmax is a tie, and goes to the lowest id."""
    smooth = fake_target(seed=8, vocab=6, order=1, sharp=2.0).row
    target = ReferenceTarget(lambda ctx: [float(int(logit)) for logit in smooth(ctx)])
    plain = run(target, "none", 0, [1, 1, 1])
    assert plain.tokens == [int(np.argmax(target.row([token]))) for token in [1, *plain.tokens[:-1]]]
    assert all(run(target, draft, k, [1, 1, 1]).tokens == plain.tokens for k in range(1, 9))


def test_the_first_drafted_token_is_checked():
    target = scripted_target([1, 1, 1], [2, 3, 4])
    for k in range(1, 5):
        generated = run(target, "prompt_lookup", k, [1, 1, 1], max_new=3)
        assert generated.tokens == [2, 3, 4]
        assert generated.stats.accepted == 0 < generated.stats.drafted


@pytest.mark.parametrize("num_right", range(5))
def test_a_partly_accepted_draft_leaves_the_right_position(num_right):
    """Lookup drafts `10 11 30 20`; the target turns off after some of them and its next row is that of a fresh pass."""
    text = [*TEXT[:num_right], 29, 28, 27]
    target = scripted_target(HOLDS_TEXT, text)
    generated = run(target, "prompt_lookup", 4, HOLDS_TEXT, max_new=len(text))
    assert generated.tokens == text
    assert generated.stats.accepted == num_right
    assert target.ctx == HOLDS_TEXT + text[:-1]


def test_the_cache_has_its_exact_length_after_every_round():
    """Before a pass the target holds prompt + emitted - 1 positions: nothing of a rejected draft, nothing missing."""
    target = fake_target(seed=3, vocab=4, order=1, sharp=3.0)
    seen, emitted = [], []
    extend = target.extend
    target.extend = lambda ids: seen.append((target.cached(), len(emitted))) or extend(ids)
    prompt, cfg = [0, 1, 2, 3, 0, 1], config_of("ngram", 4)
    generate_stream(target, cfg, prompt, SamplingParams(), 5, 60, [], lambda token, _: emitted.append(token) or True)
    assert seen[0] == (0, 0)
    assert [cached - num_emitted for cached, num_emitted in seen[1:]] == [len(prompt) - 1] * (len(seen) - 1)
    steps = [after - before for (_, before), (_, after) in pairwise(seen)]
    assert min(steps) == 1, "some round rejected all"
    assert max(steps) > 1, "and some accepted"


@pytest.mark.parametrize("draft", KINDS)
def test_penalties_work_with_speculation_on(draft):
    target, prompt = fake_target(seed=6, vocab=8, order=1, sharp=4.0), [3, 1, 2, 3, 1, 2, 3, 1]
    texts = {}
    for penalty in (-2.0, 2.0):
        params = SamplingParams(temperature=0, frequency_penalty=penalty)
        texts[penalty] = run(target, "none", 0, prompt, params).tokens
        assert all(run(target, draft, k, prompt, params).tokens == texts[penalty] for k in range(1, 9))
    assert texts[-2.0] != texts[2.0]


def test_every_accepted_token_feeds_the_penalties():
    """Three of the same accepted in a round: the fourth is worth six less, and not two."""
    row = [0.0, 7.0, 2.0, 1.5]
    params = SamplingParams(temperature=0, frequency_penalty=2.0)
    verified = verify_draft(np.array([row] * 4, np.float32), [1, 1, 1], None, params, [0], [], Pcg32(1))
    assert (list(verified.tokens), verified.n_accepted) == ([1, 1, 1, 2], 3)


def test_rejected_drafts_leave_no_penalty():
    """The target turns all drafts down; what it emits afterwards is as if they had never been proposed."""
    target = ReferenceTarget(lambda ctx: [0.0, 3.0, 2.9, 2.8, 2.7, 2.6])
    params = SamplingParams(temperature=0, presence_penalty=2.0, frequency_penalty=0.01)
    prompt = [5, 0, 5, 0, 5]
    plain = run(target, "none", 0, prompt, params, max_new=12)
    for draft, k in product(KINDS, range(1, 9)):
        speculative = run(target, draft, k, prompt, params, max_new=12)
        assert speculative.tokens == plain.tokens
        assert speculative.stats.drafted > speculative.stats.accepted


@pytest.mark.parametrize("min_tokens", range(7))
def test_min_tokens_counts_tokens_and_not_rounds(min_tokens):
    """The target wants its stop id 2 at place 2 and ever after; it may have it once `min_tokens` tokens are out."""

    def row(ctx):
        position = len(ctx) - len(HOLDS_TEXT)
        best = [10, 11][position] if 0 <= position < 2 else 2
        return [4.0 if token == best else 3.0 if token == 20 else 0.0 for token in range(32)]

    target = ReferenceTarget(row)
    for stop in ({"eos": [2]}, {"stop": (2,)}):
        params = SamplingParams(temperature=0, min_tokens=min_tokens, stop_token_ids=stop.get("stop", ()))
        for k in range(9):
            generated = run(target, "prompt_lookup", k, HOLDS_TEXT, params, max_new=9, eos=stop.get("eos", ()))
            assert generated.tokens == [10, 11, *[20] * (min_tokens - 2), 2]
            assert generated.finish_reason == "stop"


@pytest.mark.parametrize("k", range(9))
def test_eos_inside_an_accepted_run_ends_the_text(k):
    target = scripted_target(HOLDS_TEXT, TEXT)
    generated = run(target, "prompt_lookup", k, HOLDS_TEXT, eos=[30])
    assert (generated.tokens, generated.finish_reason) == ([10, 11, 30], "stop")
    assert len(generated.logprobs) == 3
    assert target.ctx == [*HOLDS_TEXT, 10, 11]


@pytest.mark.parametrize("k", range(9))
def test_stop_id_is_seen_before_the_length_cap(k):
    target = scripted_target(HOLDS_TEXT, TEXT)
    params = SamplingParams(temperature=0, stop_token_ids=(30,))
    generated = run(target, "prompt_lookup", k, HOLDS_TEXT, params, max_new=5)
    assert (generated.tokens, generated.finish_reason) == ([10, 11, 30], "stop")
    generated = run(target, "prompt_lookup", k, HOLDS_TEXT, params, max_new=3)
    assert (generated.tokens, generated.finish_reason) == ([10, 11, 30], "stop")
    generated = run(target, "prompt_lookup", k, HOLDS_TEXT, params, max_new=2)
    assert (generated.tokens, generated.finish_reason) == ([10, 11], "length")


@pytest.mark.parametrize("draft", KINDS)
def test_every_token_has_the_logprob_of_its_raw_row(draft):
    """Whatever the penalties, the temperature and the drafts: the log-softmax of what the target said."""
    target, prompt = fake_target(seed=6, vocab=8, order=1, sharp=4.0), [3, 1, 2, 3, 1, 2, 3, 1]
    for params in (GREEDY, SamplingParams(temperature=0.6, top_k=3, frequency_penalty=1.0, logit_bias={2: 2.0})):
        for k, verify in product(range(9), ("match", "resample")):
            generated = run(target, draft, k, prompt, params, verify=verify)
            ctx, expected = list(prompt), []
            for token in generated.tokens:
                row = np.array(target.row(ctx))
                expected.append(row[token] - np.log(np.exp(row).sum()))
                ctx.append(token)
            assert generated.logprobs == pytest.approx(expected, rel=1e-9)


LIMIT = 12


@pytest.mark.parametrize("draft", ["none", *KINDS])
@pytest.mark.parametrize("length", [1, LIMIT - 3, LIMIT - 1, LIMIT])
def test_drafts_never_run_past_the_length_limit(draft, length):
    """A text may have limit + 1 tokens: the last one is emitted and never fed."""
    prompt = ([3, 1, 2] * LIMIT)[:length]
    free = fake_target(seed=2, vocab=8, order=1)
    target = fake_target(seed=2, vocab=8, order=1, max_model_len=LIMIT)
    room = LIMIT - length + 1
    for max_new in {1, LIMIT - length, room, room + 1, 50} - {0}:
        generated = run(target, draft, 10, prompt, max_new=max_new)
        assert generated.tokens == run(free, "none", 0, prompt, max_new=min(max_new, room)).tokens
        assert generated.finish_reason == "length"
        assert target.longest <= LIMIT
        assert target.cached() == length + len(generated.tokens) - 1


@pytest.mark.parametrize("k", range(9))
@pytest.mark.parametrize("max_new", range(1, 8))
def test_usage_is_what_was_delivered(k, max_new):
    target = scripted_target(HOLDS_TEXT, [*TEXT, 1, 2])
    heard = []
    cfg = config_of("prompt_lookup", k)
    generated = generate_stream(
        target, cfg, HOLDS_TEXT, GREEDY, 1, max_new, [], lambda token, _: heard.append(token) or True
    )
    assert heard == generated.tokens == [*TEXT, 1, 2][:max_new]
    assert len(generated.logprobs) == max_new
    assert generated.stats.accepted + generated.stats.target_calls == max_new, "a bonus token for each pass"


def test_accept_rate_does_not_count_the_bonus_token():
    target = scripted_target([1, 1, 1, 1], [2, 3, 4, 5])
    stats = run(target, "prompt_lookup", 3, [1, 1, 1, 1], max_new=4).stats
    assert (stats.drafted > 0, stats.accepted, stats.accept_rate) == (True, 0, 0.0)
    all_right = scripted_target(HOLDS_TEXT, TEXT)
    stats = run(all_right, "prompt_lookup", 3, HOLDS_TEXT, max_new=4).stats
    assert (stats.drafted, stats.accepted, stats.target_calls, stats.accept_rate) == (3, 3, 1, 1.0)
    assert run(all_right, "none", 3, HOLDS_TEXT, max_new=4).stats.accept_rate == 0.0


def test_tokens_accepted_behind_an_eos_do_not_count():
    target = scripted_target(HOLDS_TEXT, TEXT)
    stats = run(target, "prompt_lookup", 5, HOLDS_TEXT, max_new=6, eos=[11]).stats
    assert (stats.drafted, stats.accepted) == (5, 2)


def test_a_round_without_drafts_draws_once():
    rng, counted = Pcg32(3, 0), Pcg32(3, 0)
    for _ in range(3):
        verify_draft(np.zeros((1, 4), np.float32), [], None, SamplingParams(), [0], [], rng)
        counted.next_u32()
        assert rng.state == counted.state
    verify_draft(np.zeros((1, 4), np.float32), [], None, GREEDY, [0], [], rng)
    assert rng.state == counted.state


@pytest.mark.parametrize("draft", KINDS)
def test_drafts_come_from_the_sequence_alone(draft):
    """A long request, then a short one: nothing of the first is left to draft from."""
    cfg = config_of(draft, 4)
    long = Drafter(cfg)
    long.append([1, 2, 3, 4] * 50)
    long.propose(4)
    short = Drafter(cfg)
    assert short.propose(4) == []
    short.append([1, 2, 9, 1, 2])
    assert short.propose(3) == propose(cfg, [1, 2, 9, 1, 2], 3) == [9, 1, 2]
