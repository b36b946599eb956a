"""What `outrider plan` opens to measure drafts of models: the target, and what drafts for it."""

from pathlib import Path
from typing import NamedTuple

from models.draft_model import DraftModel
from models.heads import build_heads, read_heads
from models.kernel_choice import build_llama
from models.loading import open_model
from models.proposers import check_vocabulary
from models.protocol import Model, Proposer, TappedModel
from models.weights import LlamaConfig, LlamaWeights
from plans.errors import PlanError
from plans.gain import Cost, ShareOfPass
from plans.hardware import Hardware, ModelShape
from plans.measured import Measured
from plans.methods import MAX_SIZE
from plans.model_replay import TREE_DEPTH, TREE_TOP, ModelMethod
from plans.plan import Models
from plans.roofline import Roofline
from plans.weights import shape_of_heads, shape_of_model
from spec import Draft


class Drafts(NamedTuple):
    """What was asked for."""

    target: str
    draft_model: str | None
    heads: Path | None
    num_sampled: int
    seed: int
    draft_step: float | None
    """In plain passes; None is by the cost's kind."""


class Opened(NamedTuple):
    """The target, with its shape for a roofline."""

    config: LlamaConfig
    weights: LlamaWeights
    model: Model
    shape: ModelShape


class _Found(NamedTuple):
    """What drafts."""

    draft: Draft
    file: str
    proposer: Proposer
    max_depth: int
    shape: ModelShape


def open_target(source: str) -> Opened:
    """Open and build the model that wrote the log. PlanError for what cannot be run."""
    try:
        opened = open_model(source)
        config = opened.config()
        weights = opened.weights(config)
        return Opened(config, weights, build_llama(config, weights), shape_of_model(source, config, weights))
    except (OSError, ValueError, RuntimeError) as error:
        raise PlanError(f"--target {source}: {error}") from None


def open_drafts(asked: Drafts, target: Opened, cost: Cost, hardware: Hardware | None) -> Models:
    """Open what drafts for the target, with what a layer of drafts takes. PlanError for what does not belong to it."""
    model = target.model
    found = []
    if asked.draft_model is not None:
        try:
            found.append(_open_model(asked.draft_model, asked.target))
        except (OSError, ValueError, RuntimeError) as error:
            raise PlanError(f"--draft-model {asked.draft_model}: {error}") from None
    if asked.heads is not None:
        try:
            found.append(_open_heads(asked.heads, target))
        except (OSError, ValueError, RuntimeError) as error:
            raise PlanError(f"--heads {asked.heads}: {error}") from None
        assert isinstance(model, TappedModel), "every llama is"
        model = model.with_taps(found[-1].proposer.taps)
    return Models(
        model,
        asked.target,
        [method for each in found for method in _methods(each, asked.target, _layers(asked, each, cost, hardware))],
        asked.num_sampled,
        asked.seed,
    )


def _open_model(source: str, target: str) -> _Found:
    opened = open_model(source)
    check_vocabulary(opened, open_model(target).tokenizer())
    config = opened.config()
    weights = opened.weights(config)
    proposer = DraftModel(build_llama(config, weights))
    return _Found(Draft.MODEL, source, proposer, MAX_SIZE, shape_of_model(source, config, weights))


def _open_heads(file: Path, target: Opened) -> _Found:
    heads = read_heads(file, target.config)
    proposer = build_heads(heads, target.config, target.weights)
    shape = shape_of_heads(str(file), heads, target.config, target.weights)
    return _Found(Draft(heads.kind), str(file), proposer, proposer.max_depth or MAX_SIZE, shape)


def _layers(asked: Drafts, found: _Found, cost: Cost, hardware: Hardware | None) -> tuple[Cost, Cost]:
    """Say what the first layer of drafts takes, and a later one."""
    if asked.draft_step is None and hardware is None:
        assert isinstance(cost, Measured), "a cost is of one kind or the other"
        return cost.layers(found.draft.value)
    every = Roofline(hardware, found.shape) if hardware is not None else cost
    if asked.draft_step is not None:
        every = ShareOfPass(asked.draft_step, cost)
    return every, every


def _methods(found: _Found, target: str, layers: tuple[Cost, Cost]) -> list[ModelMethod]:
    name = found.draft.value
    what = "a draft model" if found.draft is Draft.MODEL else f"{name} heads"
    depth = min(TREE_DEPTH, found.max_depth)
    chain = ModelMethod(
        name,
        f"{what}, a chain",
        found.draft,
        found.file,
        found.proposer,
        min(MAX_SIZE, found.max_depth),
        *layers,
        target,
    )
    tree = chain._replace(
        name=f"{name}-tree",
        about=f"{what}, a dynamic tree of up to {depth} layers with {TREE_TOP} nodes followed",
        max_depth=depth,
        top=TREE_TOP,
    )
    return [chain, tree]
