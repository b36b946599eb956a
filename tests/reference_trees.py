"""Draft trees once more: slow, plain Python, and no line shared with `spec`.

A tree is two lists, `tokens` and `parents`; laws are lists of numbers, floats or fractions; `uniform()` draws, and
`law(node)` is the target's law after a node, -1 being the root. The code does nothing to a uniform but ask whether it
is below a number, so that a draw may be a number or a whole interval (`tests.spec.enumeration`).
"""

from itertools import product

from tests import reference as ref

ROOT = -1


def children_of(parents, node):
    return [child for child, parent in enumerate(parents) if parent == node]


def path_to(parents, node):
    return [] if node == ROOT else [*path_to(parents, parents[node]), node]


def tokens_to(tokens, parents, node):
    return [tokens[step] for step in path_to(parents, node)]


def scaled(weights):
    total = sum(weights)
    return [weight / total for weight in weights] if total > 0 else list(weights)


def residual(p, q):
    left = [max(a - b, 0) for a, b in zip(p, q, strict=True)]
    return scaled(left) if sum(left) > 0 else p


def without(p, token):
    return scaled([0 if other == token else mass for other, mass in enumerate(p)])


def pick(p, u):
    running = 0
    for token, mass in enumerate(p):
        running += mass
        if u < running:
            return token
    return max(token for token, mass in enumerate(p) if mass > 0)


# ------------ children


def best_first(q):
    return sorted((token for token, mass in enumerate(q) if mass > 0), key=lambda token: (-q[token], token))


def take(q, num, children, uniform):
    if children == "top":
        return best_first(q)[:num]
    taken = []
    while len(taken) < num and sum(q) > 0:
        taken.append(pick(q, uniform()))
        if children == "distinct":
            q = without(q, taken[-1])
    return taken


# ------------ verifying: `(path, the token after it)`


def follow(tokens, parents, token_after, node=ROOT):
    token = token_after(node)
    for child in children_of(parents, node):
        if tokens[child] == token:
            path, last = follow(tokens, parents, token_after, child)
            return [child, *path], last
    return [], token


def match(law, tokens, parents, uniform):
    return follow(tokens, parents, lambda node: pick(law(node), uniform()))


def resample(law, tokens, parents, q, children, uniform, node=ROOT):
    siblings = children_of(parents, node)
    draws = [uniform() for _ in siblings]
    last_draw = uniform()
    r = law(node)
    taken = []
    for child, u in zip(siblings, draws, strict=True):
        x = tokens[child]
        of_child = [int(token == x) for token in range(len(r))] if children == "top" else q[child]
        if children == "distinct":
            for sibling in taken:
                of_child = without(of_child, sibling)
        if u < r[x] / of_child[x]:
            path, last = resample(law, tokens, parents, q, children, uniform, child)
            return [child, *path], last
        r = residual(r, of_child)
        taken.append(x)
    return [], pick(r, last_draw)


def traversal(law, tokens, parents, q, children, uniform, node=ROOT, a=1):
    """None where neither the node nor one below it is accepted."""
    p = law(node)
    taken = []
    for child in children_of(parents, node):
        x = tokens[child]
        of_child = q[child]
        if children == "distinct":
            for sibling in taken:
                of_child = without(of_child, sibling)
        found = traversal(law, tokens, parents, q, children, uniform, child, min(1, a * p[x] / of_child[x]))
        if found:
            return [child, *found[0]], found[1]
        left = [max(a * mass - other, 0) for mass, other in zip(p, of_child, strict=True)]
        s = sum(left)
        p = scaled(left) if s > 0 else p
        a = 1 if node == ROOT else s / (s + 1 - a) if s > 0 else 0
        taken.append(x)
    if node != ROOT and not uniform() < a:
        return None
    return [], pick(p, uniform())


def judge(rule, law, tokens, parents, q, children, uniform):
    if rule == "match":
        return match(law, tokens, parents, uniform)
    if rule == "resample":
        return resample(law, tokens, parents, q, children, uniform)
    return traversal(law, tokens, parents, q, children, uniform)


def verify_tree(rows, tokens, parents, q, params, prompt, output, rng, rule, children):
    """A dict with the fields that a vector of `tree_verify` must equal."""

    def law(node):
        return ref.distribution(rows[node + 1], params, prompt, output + tokens_to(tokens, parents, node))

    if params["temperature"] == 0:
        path, last = follow(tokens, parents, lambda node: ref.argmax(law(node)))
    else:
        path, last = judge(rule, law, tokens, parents, q, children, rng.next_f64)
    emitted = [*(tokens[node] for node in path), last]
    nodes = [ROOT, *path]
    logprobs = [ref.logprob(rows[node + 1], token) for node, token in zip(nodes, emitted, strict=True)]
    return {"tokens": emitted, "path": path, "n_accepted": len(path), "logprobs": logprobs}


# ------------ shapes: fixed ones as rank paths


def fixed_paths(shape):
    kind = shape["kind"]
    if kind == "chain":
        return [(0,) * depth for depth in range(1, shape["k"] + 1)]
    if kind == "expansion":
        widths = shape["widths"]
        return [path for depth in range(1, len(widths) + 1) for path in product(*map(range, widths[:depth]))]
    if kind == "static":
        return sorted(map(tuple, shape["paths"]), key=lambda path: (len(path), path))
    depths = range(1, shape["depth"] + 1)
    all_paths = [path for depth in depths for path in product(range(len(shape["acceptance"])), repeat=depth)]
    worth = [(-chance(shape["acceptance"], path), len(path), path) for path in all_paths]
    best = sorted(entry for entry in worth if entry[0] < 0)[: shape["nodes"]]
    return sorted((path for *_, path in best), key=lambda path: (len(path), path))


def chance(acceptance, path):
    result = 1.0
    for rank in path:
        result *= acceptance[rank]
    return result


def largest_sum(acceptance, nodes, depth):
    """Of all trees: any set of paths that holds the elder sibling and the parent of each."""
    grown, best = {frozenset()}, 0.0
    for _ in range(nodes):
        grown = {paths | {path} for paths in grown for path in next_paths(paths, len(acceptance), depth)}
        best = max([best, *(sum(chance(acceptance, path) for path in paths) for paths in grown)])
    return best


def next_paths(paths, num_ranks, depth):
    for parent in [(), *paths]:
        rank = sum(len(path) == len(parent) + 1 and path[:-1] == parent for path in paths)
        if rank < num_ranks and len(parent) < depth:
            yield (*parent, rank)


def grow_fixed(shape, law, ctx, children, max_depth, uniform):
    paths = [path for path in fixed_paths(shape) if len(path) <= max_depth]
    number, tokens, parents, q = {(): ROOT}, [], [], []
    for parent_path in [(), *paths]:
        below = [path for path in paths if path[:-1] == parent_path and len(path) == len(parent_path) + 1]
        if not below or parent_path not in number:
            continue
        node = number[parent_path]
        after = law(ctx + tokens_to(tokens, parents, node))
        taken = take(after, below[-1][-1] + 1, children, uniform)
        for path in below:
            if path[-1] < len(taken) and after[taken[path[-1]]] >= shape.get("p_min", 0):
                number[path] = len(tokens)
                tokens.append(taken[path[-1]])
                parents.append(node)
                q.append(after)
    return tokens, parents, None if children == "top" else q


def grow_dynamic(shape, law, ctx, max_depth):
    nodes = []  # (value, depth, token, parent)
    layer = [ROOT]
    for depth in range(1, min(shape["depth"], max_depth) + 1):
        first = len(nodes)
        for node in layer:
            tokens, parents = [entry[2] for entry in nodes], [entry[3] for entry in nodes]
            after = law(ctx + tokens_to(tokens, parents, node))
            for token in best_first(after)[: shape["top"]]:
                nodes.append(((nodes[node][0] if node >= 0 else 1.0) * after[token], depth, token, node))
        layer = sorted(range(first, len(nodes)), key=lambda node: (-nodes[node][0], node))[: shape["top"]]
    kept = sorted(sorted(range(len(nodes)), key=lambda i: (-nodes[i][0], nodes[i][1], i))[: shape["nodes"]])
    number = {ROOT: ROOT, **{node: i for i, node in enumerate(kept)}}
    return (
        [nodes[node][2] for node in kept],
        [number[nodes[node][3]] for node in kept],
        [nodes[node][0] for node in kept],
    )


def grow_best_first(shape, law, ctx, max_depth):
    tokens, parents, values, depths = [], [], [], []
    heap, node = [], ROOT
    while True:
        depth = depths[node] if node >= 0 else 0
        if depth < max_depth:
            after = law(ctx + tokens_to(tokens, parents, node))
            for token in best_first(after):
                value = (values[node] if node >= 0 else 1.0) * after[token]
                heap.append((-value, depth + 1, len(heap) + len(tokens), token, node))
        heap.sort()
        if not heap or len(tokens) == shape["nodes"] or -heap[0][0] < shape["min_prob"]:
            return tokens, parents, values
        value, depth, _, token, parent = heap.pop(0)
        node = len(tokens)
        tokens.append(token)
        parents.append(parent)
        values.append(-value)
        depths.append(depth)


def grow(shape, law, ctx, children, max_depth, uniform):
    """`(tokens, parents, draft_probs)`."""
    if max_depth < 1:
        return [], [], None if children == "top" else []
    if shape["kind"] == "dynamic":
        return *grow_dynamic(shape, law, ctx, max_depth)[:2], None
    if shape["kind"] == "best_first":
        return *grow_best_first(shape, law, ctx, max_depth)[:2], None
    return grow_fixed(shape, law, ctx, children, max_depth, uniform)


# ------------ the loop


def toy_law(target, proposer):
    other = {"vocab": target["vocab"], **{name: proposer[name] for name in ("seed", "order", "sharp")}}
    params = ref.make_params(temperature=proposer["temperature"], top_k=proposer["top_k"])

    def law(ctx):
        rows = ref.fake_row(target, ctx), ref.fake_row(other, ctx)
        mix = proposer["mix"]
        return ref.distribution([mix * a + (1 - mix) * b for a, b in zip(*rows, strict=True)], params, [], [])

    return law


def generate(target, proposer, shape, children, rule, prompt, params, seed, choice, max_new, eos):
    """A dict with the fields that a vector of `tree_loop` must equal."""
    stops = {*eos, *params["stop_token_ids"]}
    params = {**params, "stop_token_ids": sorted(stops)}
    children = "top" if params["temperature"] == 0 else children
    law, rng, draft_rng = toy_law(target, proposer), ref.lane(seed, 2 * choice), ref.lane(seed, 2 * choice + 1)
    emitted, logprobs, rounds, by_depth, finish_reason = [], [], [], [], None
    while finish_reason is None:
        ctx, room = prompt + emitted, max_new - len(emitted) - 1
        tokens, parents, q = grow(shape, law, ctx, children, room, draft_rng.next_f64)
        nodes = [ROOT, *range(len(tokens))]
        rows = [ref.fake_row(target, ctx + tokens_to(tokens, parents, node)) for node in nodes]
        told = verify_tree(rows, tokens, parents, q, params, prompt, emitted, rng, rule, children)
        kept = told["tokens"]
        if stops & set(kept):
            kept = kept[: min(kept.index(stop) for stop in stops if stop in kept) + 1]
            finish_reason = "stop"
        emitted = emitted + kept
        if finish_reason is None and len(emitted) == max_new:
            finish_reason = "length"
        logprobs += told["logprobs"][: len(kept)]
        first = len(ctx)  # the slot of node 0: all that was pending lies before it
        staying = told["path"][: len(kept) - 1]
        moves = [[first + node, first + i] for i, node in enumerate(staying) if node != i]
        rounds.append([tokens, parents, told["path"], len(kept), moves])
        by_depth += [0] * (min(len(told["path"]), len(kept)) - len(by_depth))
        for depth in range(min(len(told["path"]), len(kept))):
            by_depth[depth] += 1
    return {
        "tokens": emitted,
        "logprobs": logprobs,
        "finish_reason": finish_reason,
        "drafted": sum(len(tokens) for tokens, *_ in rounds),
        "accepted": sum(by_depth),
        "accepted_by_depth": by_depth,
        "target_calls": len(rounds),
        "cached": len(prompt) + len(emitted) - 1,
        "draft_next_u32": draft_rng.next_u32(),
        "rounds": rounds,
    }
