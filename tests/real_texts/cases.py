"""Ways to draft for SmolLM2: eight requests in few blocks, one of which leaves, against the one-sequence loop."""

import asyncio
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from actors import Engine, EngineConfig, Request
from models import LoneProposer, RunnerTarget
from models.draft_model import DraftModel
from models.heads import Affine, EagleHeads, MedusaHeads, Words, build_heads, default_heads, read_heads
from models.kernel_choice import build_llama
from models.loading import locate, open_model
from scheduler import PassCost
from spec import BestFirst, Chain, Dynamic, Expansion, SamplingParams, Sequoia, SpecConfig, Static, generate
from tests.heads.tiny import Seeded

NAME = "smollm2-135m"
NUM_DRAFT_LAYERS = 20  # of the target's 30: what drafts as a second model

_SHAPES = {
    "chain": Chain(3),
    "p_min": Chain(4, 0.2),
    "expansion": Expansion((2, 2, 1)),
    "static": Static(((0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0))),
    "sequoia": Sequoia((0.6, 0.2, 0.1), 7, 3),
    "dynamic": Dynamic(6, 3, 3),
    "best_first": BestFirst(5, 0.01),
}
_DRAWN = ("chain", "expansion", "static", "sequoia")
_ORDERS = (
    "Repeat this list twice: red, green, blue, red, green, blue, red, green, blue",
    "How do I keep bread fresh for a week?",
    'Write {"name": "Ada", "age": 36}, {"name": "Bo", "age": 41} once more, with ages one higher.',
    "def area(width, height):\n    return width * height\nAdd a docstring.",
)
_NUM_REQUESTS, _NUM_TOKENS, _LEAVES = 8, 36, 1


class Case(NamedTuple):
    """A way to draft; `draft` is what of `_proposer` drafts, None where text alone does."""

    name: str
    speculative: SpecConfig
    draft: str | None
    is_adaptive: bool = False


def cases():
    """Every proposer with every shape and rule that it can have, and those that are made ahead."""
    found = []
    for text, shapes in (
        ("prompt_lookup", {"chain": None}),
        ("ngram", {"chain": None}),
        ("suffix", {"chain": None, "best_first": BestFirst(6)}),
    ):
        for name, shape in shapes.items():
            for rule in ("match", "resample"):
                spec = SpecConfig(text, 4, rule=rule) if shape is None else SpecConfig(text, shape=shape, rule=rule)
                found.append(Case(f"{text} {name} {rule}", spec, None))
    for kind in ("model", "linear", "medusa", "eagle", "eagle3"):
        for name, shape in _SHAPES.items():
            if kind == "medusa" and name in ("best_first", "p_min"):
                continue  # they may go deeper than there are heads
            ways = [("top", "match"), ("top", "resample")]
            if name in _DRAWN:
                ways += [("iid", "resample"), ("distinct", "resample"), ("distinct", "traversal")]
            for children, rule in ways:
                spec = SpecConfig(kind, shape=shape, children=children, rule=rule, model="beside")
                found.append(Case(f"{kind} {name} {children} {rule}", spec, kind))
        ahead = SpecConfig(kind, 3, rule="match", model="beside")
        found.append(Case(f"{kind} chain ahead match", ahead, kind, is_adaptive=True))
    for is_adaptive in (False, True):
        spec = SpecConfig("hybrid", 6, rule="match", head_k=2, model="beside")
        found.append(Case(f"hybrid chain {'ahead' if is_adaptive else 'asked'} match", spec, "linear", is_adaptive))
    return found


@cache
def _opened():
    file = open_model(NAME)
    config = file.config()
    return config, file.weights(config), file.tokenizer()


@cache
def _proposer(kind):
    """What drafts: a part of the target, the heads that come along, or heads of drawn weights."""
    config, weights, _ = _opened()
    if kind == "model":
        fewer = replace(config, num_layers=NUM_DRAFT_LAYERS)
        return DraftModel(build_llama(fewer, replace(weights, layers=weights.layers[:NUM_DRAFT_LAYERS])))
    if kind == "linear":
        return build_heads(read_heads(default_heads(NAME), config), config, weights)
    seeded, dim = Seeded(1), config.dim
    if kind == "medusa":
        blocks = tuple((Affine(seeded.matrix(dim, dim, 0.3)),) for _ in range(3))
        return build_heads(MedusaHeads(blocks, (None,) * 3), config, weights)
    is_third = kind == "eagle3"
    in_dim = 2 * dim if is_third else dim
    heads = EagleHeads(
        kind=kind,
        config=replace(config, num_layers=1),
        fuse=Affine(seeded.matrix(dim, (3 if is_third else 2) * dim)),
        q=seeded.matrix(config.q_dim, in_dim),
        k=seeded.matrix(config.kv_dim, in_dim),
        v=seeded.matrix(config.kv_dim, in_dim),
        o=seeded.matrix(dim, config.q_dim),
        gate=seeded.matrix(config.ffn_dim, dim),
        up=seeded.matrix(config.ffn_dim, dim),
        down=seeded.matrix(dim, config.ffn_dim),
        mlp_norm=seeded.norm(dim),
        input_norm=seeded.norm(dim) if is_third else None,
        feature_norm=seeded.norm(dim) if is_third else None,
        final_norm=seeded.norm(dim) if is_third else None,
        words=Words(),
    )
    return build_heads(heads, config, weights)


@cache
def _target(taps):
    config, weights, _ = _opened()
    return build_llama(config, weights).with_taps(taps)


@cache
def _requests():
    _, _, tokenizer = _opened()
    prompts = [tokenizer.chat([{"role": "user", "content": order}])[-40:] for order in _ORDERS]
    params = (SamplingParams(temperature=0), SamplingParams(temperature=0.8, top_p=0.95))
    return [
        Request(prompt=prompts[i % len(prompts)], params=params[i // 4 % 2], max_tokens=_NUM_TOKENS, seed=i)
        for i in range(_NUM_REQUESTS)
    ]


def _alone(request, speculative, draft):
    proposer = None if draft is None else _proposer(draft)
    lone = RunnerTarget(_target(() if proposer is None else proposer.taps), 6, 16)
    return generate(
        lone,
        speculative,
        request.prompt,
        request.params,
        request.seed,
        request.max_tokens,
        (),
        proposer=None if proposer is None else LoneProposer(proposer, lone),
    ).tokens


@cache
def _plain(i):
    return _alone(_requests()[i], SpecConfig.parse("none", 1), None)


def run(case):
    """Run a case; what there is to say of it. Raises AssertionError for a text that is another."""
    proposer = None if case.draft is None else _proposer(case.draft)
    target = _target(() if proposer is None else proposer.taps)
    config = EngineConfig(
        num_blocks=17,
        block_tokens=16,
        max_batch_tokens=96,
        max_model_len=128,
        speculative=case.speculative,
        adaptive=case.is_adaptive,
    )
    cost = PassCost.linear(1.0, 0.05, 0.05) if case.is_adaptive else None

    async def main():
        async with Engine(target, config, proposer=proposer, pass_cost=cost) as engine:
            streams = [engine.submit(request) for request in _requests()]

            async def read(i):
                if i == _LEAVES:
                    async for _ in streams[i]:
                        break
                    await streams[i].cancel()
                    return None
                return [token.id async for token in streams[i]]

            seen = await asyncio.gather(*map(read, range(_NUM_REQUESTS)))
            engine.check()
            stats = engine.stats()
        assert stats.blocks.held == 0
        assert stats.counters.num_failed_proposals == 0
        return seen, stats.counters

    seen, counters = asyncio.run(main())
    for i, (request, tokens) in enumerate(zip(_requests(), seen, strict=True)):
        if tokens is None:
            continue
        is_plain = case.speculative.rule == "match" or request.params.is_greedy
        expected = _plain(i) if is_plain else _alone(request, case.speculative, case.draft)
        assert tokens == expected, f"{case.name}: request {i} says {tokens}, alone {expected}"
    return (
        f"{counters.num_preemptions} preempted, {counters.num_drafted} tokens drafted, "
        f"{counters.num_accepted} accepted in {counters.num_rounds} rounds"
    )


def is_there():
    """Whether the model has been pulled."""
    return locate(NAME) is not None
