"""What is drafted at all positions at once is what a drafter drafts at each."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from plans.lookup import lookup_drafts
from spec import Drafter, SpecConfig


@st.composite
def texts(draw):
    vocab = draw(st.integers(1, 5))
    token = st.integers(0, vocab - 1).map(lambda t: t * 7)
    return draw(st.lists(token, max_size=30)), draw(st.lists(token, min_size=1, max_size=40))


@settings(max_examples=300)
@given(texts(), st.integers(1, 4), st.integers(0, 3), st.integers(1, 16), st.sampled_from(["latest", "earliest"]))
def test_drafts_at_all_positions_are_those_of_a_drafter_at_each(text, min_ngram, more, k, occurrence):
    prompt, completion = text
    cfg = SpecConfig("prompt_lookup", k, max_ngram=min_ngram + more, min_ngram=min_ngram, occurrence=occurrence)
    tokens = np.array(prompt + completion)
    drafts = lookup_drafts(tokens, len(prompt), k, cfg.max_ngram, cfg.min_ngram, occurrence)
    drafter = Drafter(cfg, prompt)
    for at, token in enumerate(completion):
        draft = drafter.propose(k)
        num_accepted = 0
        for drafted, recorded in zip(draft, completion[at:], strict=False):
            if drafted != recorded:
                break
            num_accepted += 1
        assert drafts.drafted[at] == len(draft)
        assert drafts.accepted[at] == num_accepted
        assert drafts.strength[at] == drafter.strength
        drafter.append([token])


def test_a_prompt_of_tokens_that_never_come_again_is_no_source():
    drafts = lookup_drafts(np.array([9, 8, 7, 1, 2, 3]), 3, 4, 3, 1)
    assert drafts.drafted.tolist() == [0, 0, 0]
