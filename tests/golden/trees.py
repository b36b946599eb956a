"""Cases about draft trees."""

from tests import reference as ref
from tests import reference_trees as trees
from tests.golden.dice import Dice

FIXED = [
    {"kind": "chain", "k": 3},
    {"kind": "expansion", "widths": [2, 2]},
    {"kind": "expansion", "widths": [3, 1, 1]},
    {"kind": "static", "paths": [[0], [1], [0, 0], [0, 1], [1, 0], [0, 0, 0]]},
    {"kind": "sequoia", "acceptance": [0.6, 0.25, 0.1], "nodes": 8, "depth": 3},
]
BY_LAW = [
    {"kind": "chain", "k": 5, "p_min": 0.4},
    {"kind": "dynamic", "nodes": 7, "top": 2, "depth": 3},
    {"kind": "best_first", "nodes": 7, "min_prob": 0.05},
]
JUDGED = [
    ("top", "match"),
    ("top", "resample"),
    ("iid", "resample"),
    ("distinct", "resample"),
    ("iid", "traversal"),
    ("distinct", "traversal"),
]


def toy(dice):
    """A target, and a proposer that agrees with it to some degree."""
    vocab = dice.pick(4, 5)
    target = {"seed": dice.rng.next_u32(), "vocab": vocab, "order": 1, "sharp": dice.pick(3.0, 6.0)}
    proposer = {"kind": "toy", "seed": dice.rng.next_u32(), "order": 2, "sharp": 3.0, "mix": dice.pick(0.5, 0.75, 0.9)}
    return target, {**proposer, "temperature": dice.pick(0.7, 1.0), "top_k": dice.pick(0, 0, 3)}


def split(shape):
    return shape["kind"], {name: value for name, value in shape.items() if name != "kind"}


def shape_cases():
    dice = Dice("tree_shapes")
    for shape in FIXED:
        paths = trees.fixed_paths(shape)
        kind, args = split(shape)
        case = {"kind": kind, "args": args, "parents": [paths.index(path[:-1]) if path[:-1] else -1 for path in paths]}
        case.update(ranks=[path[-1] for path in paths], depths=[len(path) for path in paths])
        if kind == "sequoia":
            case["sum"] = sum(trees.chance(shape["acceptance"], path) for path in paths)
        yield case
    for acceptance in ([0.2, 0.5], [0.1, 0.7, 0.3], [0.0, 0.6]):
        args = {"acceptance": acceptance, "nodes": 5, "depth": 3}
        yield {"kind": "sequoia", "args": args, "any_tree": True, "sum": trees.largest_sum(**args)}
    narrow = [
        {"kind": "dynamic", "nodes": 4, "top": 3, "depth": 3},
        {"kind": "best_first", "nodes": 12, "min_prob": 0.2},
    ]
    for shape in [*BY_LAW, *narrow]:
        for _ in range(3):
            target, proposer = toy(dice)
            ctx = dice.ids(2, target["vocab"])
            kind, args = split(shape)
            kind = "chain_p_min" if kind == "chain" else kind
            case = {"kind": kind, "args": args, "target": target, "proposer": proposer, "ctx": ctx}
            law = trees.toy_law(target, proposer)
            if kind == "chain_p_min":
                tokens, parents, _ = trees.grow_fixed(shape, law, ctx, "top", 64, None)
                yield {**case, "tokens": tokens, "parents": parents}
                continue
            grow = trees.grow_dynamic if kind == "dynamic" else trees.grow_best_first
            tokens, parents, values = grow(shape, law, ctx, 64)
            yield {**case, "tokens": tokens, "parents": parents, "values": values}
    for path in ([], [0], [1], [0, 2], [1, 3, 4]):
        args = {"cached": dice.below(9), "pending": 1 + dice.below(3), "nodes": 6, "path": path}
        args.update(kept=1 + dice.below(len(path) + 1), block_tokens=dice.pick(1, 4))
        first = args["cached"] + args["pending"]
        staying = path[: args["kept"] - 1]
        moves = [[first + node, first + i] for i, node in enumerate(staying) if node != i]
        case = {"kind": "compaction", "args": args, "moves": moves, "cached": first + len(staying)}
        yield {
            **case,
            "blocks_in_pass": -(-(first + 6) // args["block_tokens"]),
            "blocks_after": -(-(first + len(staying)) // args["block_tokens"]),
        }


def children_cases():
    dice = Dice("tree_children")
    for children in ("top", "iid", "distinct"):
        for num_weights in (3, 5):
            weights = [dice.pick(0, 1, 2, 3) for _ in range(num_weights)]
            weights[0] += 16 - sum(weights)
            q = [weight / 16 for weight in weights]
            case = {"kind": "node", "q": q, "k": dice.pick(2, 3, 5), "children": children}
            case.update(initstate=dice.u64(), initseq=dice.below(200))
            rng = ref.Pcg32(case["initstate"], case["initseq"])
            yield {**case, "tokens": trees.take(q, case["k"], children, rng.next_f64), "next_u32": rng.next_u32()}
        for shape in FIXED:
            target, proposer = toy(dice)
            ctx = dice.ids(2, target["vocab"])
            case = {"kind": "tree", "shape": shape, "target": target, "proposer": proposer, "ctx": ctx}
            case.update(children=children, max_depth=dice.pick(None, 2))
            case.update(initstate=dice.u64(), initseq=dice.below(200))
            rng = ref.Pcg32(case["initstate"], case["initseq"])
            law = trees.toy_law(target, proposer)
            tokens, parents, q = trees.grow(shape, law, ctx, children, case["max_depth"] or 64, rng.next_f64)
            yield {
                **case,
                "tokens": tokens,
                "parents": parents,
                "draft_probs": q and said_once(q),
                "next_u32": rng.next_u32(),
            }


def said_once(laws):
    """An integer for a law that was there before."""
    return [laws.index(law) if laws.index(law) < i else law for i, law in enumerate(laws)]


def verify_cases():
    dice = Dice("tree_verify")
    for i in range(36):
        children, rule = JUDGED[i % len(JUDGED)]
        target, proposer = toy(dice)
        vocab, ctx = target["vocab"], dice.ids(2, target["vocab"])
        params = dice.params(vocab, 0 if i % 9 == 0 else dice.pick(0.7, 1.0, 1.6))
        law = trees.toy_law(target, proposer)
        tokens, parents, q = trees.grow(FIXED[i % 5], law, ctx, children, 64, dice.rng.next_f64)
        prompt, output = ctx, dice.ids(dice.below(4), vocab)
        nodes = [-1, *range(len(tokens))]
        rows = [ref.fake_row(target, ctx + trees.tokens_to(tokens, parents, node)) for node in nodes]
        rows = [[round(8 * logit) / 8 for logit in row] for row in rows]
        case = {"rows": rows, "tokens": tokens, "parents": parents, "children": children, "rule": rule}
        case.update(draft_probs=q and said_once(q), params=params, prompt=prompt, output=output)
        case.update(initstate=dice.u64(), initseq=dice.below(200))
        rng = ref.Pcg32(case["initstate"], case["initseq"])
        expect = trees.verify_tree(rows, tokens, parents, q, params, prompt, output, rng, rule, children)
        yield {**case, "expect": expect, "next_u32": rng.next_u32()}


def loop_cases():
    dice = Dice("tree_loop")
    for i in range(24):
        children, rule = JUDGED[i % len(JUDGED)]
        target, proposer = toy(dice)
        shapes = FIXED + BY_LAW if children == "top" else FIXED
        case = {"target": target, "proposer": proposer, "shape": shapes[(i // 2) % len(shapes)]}
        case.update(children=children, rule=rule, prompt=dice.ids(1 + dice.below(3), target["vocab"]))
        case.update(params=dice.params(target["vocab"], 0 if i % 7 == 0 else dice.pick(0.7, 1.0)), seed=dice.u64())
        case.update(choice=dice.pick(0, 1), max_new=dice.pick(3, 12), eos=dice.ids(dice.pick(0, 0, 1), target["vocab"]))
        yield {**case, **trees.generate(**case)}
