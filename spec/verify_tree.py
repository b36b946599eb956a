"""One round's verification of a token tree: the path that the target keeps, and the token it adds.

"match" is plain sampling that follows the tree for as long as it can; "resample" tries sibling after sibling, each
against what the ones before it left of the target's law (SpecInfer, Miao et al. 2024; without replacement: Sequoia,
Chen et al. 2024). "traversal" is in `spec.traversal`.
"""

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spec.choices import Children, Rule, check_rule
from spec.distribution import Generator, Row, TokenCounts, argmax, best_id, check_row, penalise, sample_dense
from spec.errors import SpecError, refuse
from spec.params import SamplingParams
from spec.traversal import traverse
from spec.tree import ROOT, DraftTree
from spec.verify import Scores, Verified, as_rows, check_law, law_of

Laws = Sequence[Row]
"""A law for each node; siblings may share one array."""


def verify_tree(
    rows: ArrayLike,
    tree: DraftTree,
    draft_probs: ArrayLike | None,
    params: SamplingParams,
    prompt: Sequence[int],
    output: Sequence[int],
    rng: Generator,
    *,
    rule: Rule = "resample",
    children: Children = "top",
) -> Verified:
    """Verify a tree of `n` nodes against the target's `n + 1` rows, float32 `[n + 1, V]`.

    Row 0 comes after the root, row `i + 1` after node `i`. `children` says how the nodes were drafted and `draft_probs`
    `[n, V]`, where they were drawn, from which law each: before any sibling was taken out of it. `output` is what was
    emitted before this round; penalties follow the path. Rows are looked at only where the path, or the rule on its
    way to it, comes by. At temperature 0 every rule follows the argmax. Raises SpecError (shapes, ids, laws, rows,
    parameters, a rule that does not go with the children); the generator has then not moved.
    """
    rows = as_rows(rows)
    laws = check_tree(rows.shape, tree, draft_probs, params, rule, children)
    counts = TokenCounts.needed_by(params, prompt, output)
    state = rng.state
    try:
        if params.is_greedy:
            path, token = _follow_best(rows, tree, params, counts)
        elif rule == "match":
            path, token = _match(rows, tree, params, counts, rng)
        elif rule == "resample":
            path, token = _resample(rows, tree, laws, params, counts, rng, children)
        else:
            assert laws is not None, "drawn children have laws"
            path, token = traverse(rows, tree, laws, params, counts, rng, is_distinct=children == "distinct")
    except SpecError:
        rng.state = state
        raise
    tokens = [*(tree.tokens[node] for node in path), token]
    of_rows = [0, *(node + 1 for node in path)]
    return Verified(tokens, len(path), Scores(rows, tokens, of_rows), path=path)


def _follow_best(
    rows: NDArray[np.floating], tree: DraftTree, params: SamplingParams, counts: TokenCounts
) -> tuple[list[int], int]:
    below = tree.children()
    path: list[int] = []
    node = ROOT
    while True:
        row = rows[node + 1]
        if params.leaves_logits_alone:
            best = best_id(row)
            check_row(row, best)
        else:
            best = argmax(penalise(row.astype(np.float64), params, counts))
        node = next((child for child in below[node] if tree.tokens[child] == best), ROOT)
        if node == ROOT:
            return path, best
        path.append(node)
        counts.add(best)


def _match(
    rows: NDArray[np.floating], tree: DraftTree, params: SamplingParams, counts: TokenCounts, rng: Generator
) -> tuple[list[int], int]:
    below = tree.children()
    path: list[int] = []
    node = ROOT
    while True:
        token = sample_dense(law_of(rows[node + 1], params, counts), rng.next_f64())
        node = next((child for child in below[node] if tree.tokens[child] == token), ROOT)
        if node == ROOT:
            return path, token
        path.append(node)
        counts.add(token)


def _resample(
    rows: NDArray[np.floating],
    tree: DraftTree,
    laws: Laws | None,
    params: SamplingParams,
    counts: TokenCounts,
    rng: Generator,
    children: Children,
) -> tuple[list[int], int]:
    below = tree.children()
    path: list[int] = []
    node = ROOT
    while True:
        siblings = below[node]
        uniforms = [rng.next_f64() for _ in siblings]  # all, always: where the path goes does not move the stream
        u_resample = rng.next_f64()
        r = law_of(rows[node + 1], params, counts)
        node, r = _try_siblings(r, tree, siblings, uniforms, laws, is_distinct=children == "distinct")
        if node == ROOT:
            return path, sample_dense(r, u_resample)
        path.append(node)
        counts.add(tree.tokens[node])


def _try_siblings(
    r: Row, tree: DraftTree, siblings: Sequence[int], uniforms: Sequence[float], laws: Laws | None, *, is_distinct: bool
) -> tuple[int, Row]:
    """Give the accepted sibling, or the root and what is left of the target's law `r`, which is overwritten.

    What is left, and the law of a distinct sibling, are kept with their mass and divided by it once, at the end.
    """
    mass = 1.0
    q: Row | None = None
    q_mass = 1.0
    spare: Row | None = None
    for child, u in zip(siblings, uniforms, strict=True):
        x = tree.tokens[child]
        if laws is None:
            kept = r[x]
            if u < kept / mass:
                return child, r
            r[x] = 0.0
            left = r.sum()
            if left > 0:
                mass = left
            else:
                r[x] = kept
            continue
        if q is None or not is_distinct:
            q = laws[child]
        share = mass / q_mass  # r / mass is the target's law, and q / q_mass the draft's
        if u < r[x] / (share * q[x]):
            return child, r
        if spare is None:
            spare = np.empty_like(r)
        np.subtract(r, q if share == 1 else np.multiply(q, share, out=spare), out=spare)
        np.maximum(spare, 0.0, out=spare)
        left = spare.sum()
        if left > 0:
            r, spare, mass = spare, r, left
        if is_distinct and child != siblings[-1]:
            q = q.copy() if q is laws[child] else q
            q[x] = 0.0
            q_mass = q.sum()
    if mass != 1:
        r /= mass
    return ROOT, r


def check_tree(
    shape: tuple[int, ...],
    tree: DraftTree,
    draft_probs: ArrayLike | None,
    params: SamplingParams,
    rule: Rule,
    children: Children,
) -> Laws | None:
    """Refuse with SpecError a tree that rows of this shape cannot verify; give the laws of its nodes."""
    check_rule(rule, children)
    num_rows, vocab_size = shape
    if num_rows != len(tree) + 1:
        raise SpecError(f"{num_rows} rows for a tree of {len(tree)}: one row more than nodes")
    for token in tree.tokens:
        if not 0 <= token < vocab_size:
            raise refuse("tokens", token, f"ids in [0, {vocab_size})")
    params.check_vocabulary(vocab_size)
    if children != "iid":
        _check_siblings_differ(tree)
    if children == "top":
        if draft_probs is not None:
            raise SpecError("draft_probs are given where children is 'top': none, the best tokens are not drawn")
        return None
    if draft_probs is None:
        raise SpecError(f"draft_probs are missing where children is {children!r}: a law for each node")
    return _check_laws(draft_probs, tree, vocab_size, is_shared=children == "distinct")


def _check_siblings_differ(tree: DraftTree) -> None:
    seen = set()
    for edge in zip(tree.parents, tree.tokens, strict=True):
        if edge in seen:
            raise refuse("tokens", edge[1], f"once among the children of node {edge[0]}")
        seen.add(edge)


def _check_laws(draft_probs: ArrayLike, tree: DraftTree, vocab_size: int, *, is_shared: bool) -> Laws:
    try:
        laws = [np.asarray(law, np.float64) for law in cast(Iterable[ArrayLike], draft_probs)]
    except ValueError:
        raise SpecError("draft_probs have unequal lengths: all of one length") from None
    if len(laws) != len(tree) or any(law.shape != (vocab_size,) for law in laws):
        raise SpecError(f"draft_probs have shapes {[law.shape for law in laws]}: [{len(tree)}, {vocab_size}]")
    checked: set[int] = set()
    of_siblings: dict[int, Row] = {}
    for node, (parent, token) in enumerate(zip(tree.parents, tree.tokens, strict=True)):
        law = laws[node]
        if id(law) not in checked:
            check_law(law, f"draft_probs[{node}]")
            checked.add(id(law))
        if law[token] == 0:
            raise refuse(f"draft_probs[{node}][{token}]", 0.0, "above 0 for the drafted id")
        first = of_siblings.setdefault(parent, law)
        if is_shared and first is not law and not np.array_equal(first, law):
            raise SpecError(
                f"draft_probs[{node}] is not that of its siblings: one law for all where they are 'distinct'"
            )
    return laws
