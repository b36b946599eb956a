"""What hypothesis draws for a round: rows with exact ties and holes, drafts that are often right."""

import math
from itertools import product
from typing import NamedTuple

from hypothesis import strategies as st

from tests import reference as ref
from tests.reference_trees import tokens_to


class Case(NamedTuple):
    rows: list
    draft: list
    draft_probs: list | None
    params: dict
    prompt: list
    output: list
    verify: str


def logits():
    return st.one_of(st.integers(-8, 8).map(lambda n: n / 2), st.floats(-9, 9, width=32), st.just(-math.inf))


def rows(vocab):
    """Two finite entries at least, so that masking a stop id leaves something."""
    row = st.lists(logits(), min_size=vocab, max_size=vocab)
    return row.map(lambda row: row if sum(map(math.isfinite, row)) > 1 else [1.0, 1.5, *row[2:]])


def ids(vocab, min_size=0, max_size=6):
    return st.lists(st.integers(0, vocab - 1), min_size=min_size, max_size=max_size)


def params(vocab):
    """The fields as JSON has them; half of the draws are plain but for the temperature."""
    temperature = {"temperature": st.sampled_from([0, 0.25, 0.7, 1.0, 1.0, 2.0])}
    more = {
        "top_k": st.integers(0, vocab + 1),
        "top_p": st.floats(0.1, 1.0),
        "min_p": st.floats(0, 0.6),
        "repetition_penalty": st.floats(0.5, 2),
        "presence_penalty": st.floats(-2, 2),
        "frequency_penalty": st.floats(-2, 2),
        "logit_bias": st.dictionaries(st.integers(0, vocab - 1).map(str), st.floats(-5, 5), max_size=2),
        "min_tokens": st.integers(0, 6),
        "stop_token_ids": ids(vocab, max_size=1),
    }
    fields = st.one_of(st.fixed_dictionaries(temperature), st.fixed_dictionaries(temperature, optional=more))
    return fields.map(lambda changes: ref.make_params(**changes))


@st.composite
def one_round(draw, vocab=None):
    vocab = draw(st.integers(2, 5)) if vocab is None else vocab
    m = draw(st.integers(0, 4))
    fields, prompt, output = draw(params(vocab)), draw(ids(vocab, min_size=1)), draw(ids(vocab))
    all_rows = [draw(rows(vocab)) for _ in range(m + 1)]
    draft, draft_probs = [], [] if draw(st.booleans()) else None
    for row in all_rows[:m]:
        law = ref.distribution(row, fields, prompt, output + draft)
        likely = [token for token in range(vocab) if law[token] > 0]
        draft.append(draw(st.sampled_from([*likely, *range(vocab)])))
        if draft_probs is not None:
            weights = draw(st.lists(st.integers(0, 3), min_size=vocab, max_size=vocab))
            weights[draft[-1]] += 1
            draft_probs.append(ref.normalize(weights))
    verify = "resample" if draft_probs is not None else draw(st.sampled_from(["resample", "match"]))
    return Case(all_rows, draft, draft_probs, fields, prompt, output, verify)


class TreeCase(NamedTuple):
    rows: list
    tokens: list
    parents: list
    draft_probs: list | None
    params: dict
    prompt: list
    output: list
    rule: str
    children: str


@st.composite
def one_tree_round(draw, vocab=None):
    """Trees of all forms, whose tokens are often what the target wants."""
    vocab = draw(st.integers(2, 5)) if vocab is None else vocab
    rule, children = draw(
        st.sampled_from(
            [*product(["resample", "match"], ["top"]), *product(["resample", "traversal"], ["iid", "distinct"])]
        )
    )
    fields, prompt, output = draw(params(vocab)), draw(ids(vocab, min_size=1)), draw(ids(vocab))
    all_rows, tokens, parents, laws = [draw(rows(vocab))], [], [], []
    for _ in range(draw(st.integers(0, 7))):
        parent = draw(st.integers(-1, len(tokens) - 1))
        taken = {tokens[i] for i in range(len(tokens)) if parents[i] == parent} if children != "iid" else set()
        if len(taken) == vocab:
            continue
        law = ref.distribution(all_rows[parent + 1], fields, prompt, output + tokens_to(tokens, parents, parent))
        free = [token for token in range(vocab) if token not in taken]
        tokens.append(draw(st.sampled_from([*(token for token in free if law[token] > 0), *free])))
        parents.append(parent)
        weights = draw(st.lists(st.integers(0, 3), min_size=vocab, max_size=vocab))
        laws.append([weight + 1 for weight in weights])
        all_rows.append(draw(rows(vocab)))
    first = [parents.index(parent) if children == "distinct" else node for node, parent in enumerate(parents)]
    draft_probs = None if children == "top" else [ref.normalize(laws[node]) for node in first]
    return TreeCase(all_rows, tokens, parents, draft_probs, fields, prompt, output, rule, children)
