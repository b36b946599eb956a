"""The one-sequence loop: what it emits, why it ends, and what it leaves in the cache."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec import SamplingParams, SpecConfig, SpecError, SpecStats, generate, generate_stream
from tests import reference as ref
from tests.spec import strategies as own
from tests.spec.statistics import chi_square_p
from tests.spec.targets import config_of, fake_target, params_of, scripted_target

GREEDY = SamplingParams(temperature=0)
KINDS = ("none", "ngram", "prompt_lookup")
REPETITIVE = [3, 1, 2, 3, 1, 2, 3, 1]


def run(target, draft="none", k=4, prompt=REPETITIVE, params=GREEDY, seed=1, max_new=24, eos=(), **options):
    target.truncate(0)
    return generate(target, config_of(draft, k), list(prompt), params, seed, max_new, list(eos), **options)


@pytest.mark.parametrize("vocab", [2, 5, 16])
@pytest.mark.parametrize("order", [1, 2])
def test_greedy_spec_equals_greedy_without_spec(vocab, order):
    target = fake_target(seed=vocab, vocab=vocab, order=order)
    prompt = [token % vocab for token in REPETITIVE]
    penalised = SamplingParams(temperature=0, repetition_penalty=1.1, frequency_penalty=0.7, presence_penalty=-0.3)
    for params in (GREEDY, penalised):
        plain = run(target, prompt=prompt, params=params)
        accepted = 0
        for draft, k in product(("ngram", "prompt_lookup"), range(1, 9)):
            speculative = run(target, draft, k, prompt, params)
            assert (speculative.tokens, speculative.logprobs) == (plain.tokens, pytest.approx(plain.logprobs, rel=1e-9))
            assert target.cached() == len(prompt) + 24 - 1
            accepted += speculative.stats.accepted
        assert accepted > 0


@settings(max_examples=100)
@given(st.data(), st.integers(2, 5), st.sampled_from(KINDS), st.integers(1, 6), st.sampled_from(["resample", "match"]))
def test_generate_matches_reference(data, vocab, draft, k, verify):
    fake = {"seed": data.draw(st.integers(0, 99)), "vocab": vocab, "order": data.draw(st.integers(1, 2)), "sharp": 5.0}
    fields, prompt = data.draw(own.params(vocab)), data.draw(own.ids(vocab, min_size=1, max_size=12))
    eos = data.draw(own.ids(vocab, max_size=1))
    fields = {**fields, "min_tokens": fields["min_tokens"] if len({*eos, *fields["stop_token_ids"]}) < vocab else 0}
    seed, choice, max_new = (
        data.draw(st.integers(0, 2**64 - 1)),
        data.draw(st.integers(0, 3)),
        data.draw(st.integers(1, 12)),
    )
    target = fake_target(**fake)
    generated = run(target, draft, k, prompt, params_of(fields), seed, max_new, eos, choice=choice, verify=verify)
    expected = ref.generate(fake, draft, k, prompt, fields, seed, max_new, eos, choice=choice, verify=verify)
    assert generated.tokens == expected["tokens"]
    assert generated.logprobs == pytest.approx(expected["logprobs"], rel=1e-9)
    assert generated.finish_reason == expected["finish_reason"]
    stats = generated.stats
    assert (stats.drafted, stats.accepted) == (expected["drafted"], expected["accepted"])
    assert stats.target_calls == target.num_calls == expected["target_calls"]
    assert target.ctx == prompt + generated.tokens[:-1]


# The prompt holds the text, so that lookup drafts it whole.
TEXT = [10, 11, 30, 20, 21, 22]
HOLDS_TEXT = [1, 2, *TEXT, 1, 2]


@pytest.mark.parametrize("k", [0, 1, 2, 3, 5, 8])
def test_eos_and_max_tokens_end_generation(k):
    target = scripted_target(HOLDS_TEXT, TEXT)
    for max_new in range(1, 7):
        generated = run(target, "prompt_lookup", k, HOLDS_TEXT, max_new=max_new)
        assert (generated.tokens, generated.finish_reason) == (TEXT[:max_new], "length")
        assert target.cached() == len(HOLDS_TEXT) + max_new - 1
        assert target.longest <= len(HOLDS_TEXT) + max_new - 1, "a draft that could not be emitted was fed"
        assert generated.stats.accepted <= generated.stats.drafted < max_new
    for place, stop in enumerate(TEXT):
        for eos, stop_token_ids in (([stop, 31], ()), ([], (stop,)), ([stop], (31, TEXT[-1]))):
            params = SamplingParams(temperature=0, stop_token_ids=stop_token_ids)
            for max_new in (place + 1, place + 2, 6):
                generated = run(target, "prompt_lookup", k, HOLDS_TEXT, params, max_new=max_new, eos=eos)
                assert (generated.tokens, generated.finish_reason) == (TEXT[: place + 1], "stop")
                assert len(generated.logprobs) == place + 1
                assert target.ctx == HOLDS_TEXT + TEXT[:place]
                assert generated.stats.accepted <= place + 1


VOCAB = 5
LAW = {"seed": 17, "vocab": VOCAB, "order": 2, "sharp": 3.0}
PROMPT = [0, 3, 1, 0, 3, 1, 2, 0, 3]


def joint_law(params, length):
    """The law of the first tokens after PROMPT, by the product of the reference's distributions."""
    law = {(): 1.0}
    for _ in range(length):
        longer = {}
        for tokens, mass in law.items():
            ctx = PROMPT + list(tokens)
            p = ref.distribution(ref.fake_row(LAW, ctx), params, PROMPT, list(tokens))
            longer.update({(*tokens, token): mass * p[token] for token in range(VOCAB)})
        law = longer
    return law


@pytest.mark.parametrize(
    ("draft", "changes", "verify", "num_seeds"),
    [
        ("prompt_lookup", {}, "resample", 4000),
        ("ngram", {}, "resample", 4000),
        ("ngram", {}, "match", 2000),
        ("prompt_lookup", {"temperature": 0.8, "top_k": 4, "presence_penalty": 0.6}, "resample", 1000),
    ],
    ids=["prompt lookup", "n-gram", "match", "penalties and top-k"],
)
def test_sampled_spec_keeps_the_target_distribution(draft, changes, verify, num_seeds):
    fields = ref.make_params(**changes)
    target, params = fake_target(**LAW), params_of(fields)
    accepted = drafted = 0
    texts = []
    for seed in range(num_seeds):
        generated = run(target, draft, 3, PROMPT, params, seed, max_new=4, verify=verify)
        texts.append(tuple(generated.tokens))
        accepted += generated.stats.accepted
        drafted += generated.stats.drafted
    assert drafted > 3 * num_seeds, "every first round drafts three tokens"
    assert 0 < accepted < drafted
    first = {tokens[0]: mass for tokens, mass in joint_law(fields, 1).items()}
    assert chi_square_p([text[0] for text in texts], first) > 1e-3
    assert chi_square_p([text[:3] for text in texts], joint_law(fields, 3)) > 1e-3


@pytest.mark.parametrize("k", range(9))
def test_generate_stream_hands_over_each_token_and_stops_when_told(k):
    target = scripted_target(HOLDS_TEXT, TEXT)
    cfg = config_of("prompt_lookup", k)
    for patience in range(1, 8):
        heard = []

        def listen(token, logprob, heard=heard, patience=patience):
            heard.append((token, logprob))
            return len(heard) < patience

        target.truncate(0)
        generated = generate_stream(target, cfg, HOLDS_TEXT, GREEDY, 1, 6, [], listen)
        assert heard == list(zip(generated.tokens, generated.logprobs, strict=True))
        assert generated.tokens == TEXT[:patience]
        assert generated.finish_reason == ("cancelled" if patience <= 6 else "length")
        assert target.ctx == HOLDS_TEXT + generated.tokens[:-1]
        assert generated.stats.accepted <= len(generated.tokens)


def test_a_listener_that_fails_leaves_the_exact_length():
    target = scripted_target(HOLDS_TEXT, TEXT)
    heard = []

    def listen(token, _logprob):
        heard.append(token)
        if len(heard) == 2:
            raise ConnectionError("gone")
        return True

    with pytest.raises(ConnectionError):
        generate_stream(target, config_of("prompt_lookup", 4), HOLDS_TEXT, GREEDY, 1, 6, [], listen)
    assert target.ctx == HOLDS_TEXT + heard[:-1]


def test_accept_rate_is_accepted_over_drafted():
    assert SpecStats().accept_rate == 0.0
    assert SpecStats(drafted=8, accepted=6, target_calls=3).accept_rate == 0.75


@pytest.mark.parametrize("choice", [0, 1, 3])
def test_choices_of_one_seed_are_streams_of_their_own(choice):
    target, params = fake_target(vocab=16, sharp=1.0), SamplingParams()
    texts = {choice: run(target, seed=5, choice=choice, params=params).tokens for choice in range(4)}
    assert len({tuple(text) for text in texts.values()}) == 4
    assert texts[choice] == run(target, seed=5, choice=choice, params=params).tokens


@pytest.mark.parametrize("draft", KINDS)
def test_what_cannot_be_generated_is_refused_with_nothing_cached(draft):
    cfg = SpecConfig.parse(draft, 4)
    target = fake_target(max_model_len=4)
    for prompt, max_new, seed, choice in [
        ([], 4, 1, 0),
        ([1], 0, 1, 0),
        ([1], -3, 1, 0),
        ([1, 2, 3, 1, 2], 1, 1, 0),
        ([1], 4, -1, 0),
        ([1], 4, 2**64, 0),
        ([1], 4, 1, -1),
    ]:
        with pytest.raises(SpecError):
            generate(target, cfg, prompt, SamplingParams(), seed, max_new, [], choice=choice)
        assert (target.cached(), target.num_calls) == (0, 0)


@pytest.mark.parametrize("options", [{"params": SamplingParams(temperature=0, logit_bias={99: 1.0})}, {"verify": "no"}])
def test_a_round_that_cannot_be_verified_leaves_nothing_of_itself_cached(options):
    target = fake_target(seed=1, vocab=5, order=1)
    with pytest.raises(SpecError):
        run(target, "prompt_lookup", prompt=[1, 2, 1, 2], **options)
    assert target.cached() == 0
