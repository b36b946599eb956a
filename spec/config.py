"""How to speculate: where drafts come from, their shape, how they are taken, and how they are judged."""

import enum
import functools
import math
from typing import Literal, Self

import msgspec

from spec.choices import RULES, Children, Rule, check_rule
from spec.errors import check_int, check_probability, is_int, is_number, refuse
from spec.params import SamplingParams
from spec.shapes import AUTO, BestFirst, Chain, Shape, check_children
from spec.tree import MAX_NODES

MAX_DRAFT_TOKENS = 16
"""The longest draft of text; the others are bounded by MAX_NODES."""

MAX_MATCH_TOKENS = 64
"""The longest text that drafts are looked up by. In text that repeats itself a token costs up to so many steps to
index, and what has followed 64 equal tokens follows more of them no more surely."""

Occurrence = Literal["latest", "earliest"]


class Draft(enum.StrEnum):
    """Where drafts come from."""

    NONE = "none"
    NGRAM = "ngram"
    PROMPT_LOOKUP = "prompt_lookup"
    SUFFIX = "suffix"
    FAKE = "fake"
    MODEL = "model"
    LINEAR = "linear"
    MEDUSA = "medusa"
    EAGLE = "eagle"
    EAGLE3 = "eagle3"
    HYBRID = "hybrid"

    @property
    def is_text(self) -> bool:
        """Drafts are copied from text that is there already: no model is run for them."""
        return self in (Draft.NGRAM, Draft.PROMPT_LOOKUP, Draft.SUFFIX)

    @property
    def needs_proposer(self) -> bool:
        """A model gives the law of the next token after every node."""
        return self is Draft.FAKE or self.has_file

    @property
    def has_file(self) -> bool:
        """The model that drafts, or the heads of the target that do, come from a file."""
        return self in (Draft.MODEL, Draft.LINEAR, Draft.MEDUSA, Draft.EAGLE, Draft.EAGLE3, Draft.HYBRID)

    @property
    def looks_up(self) -> bool:
        """Drafts are copied from what followed the end of the text where it stood before."""
        return self in (Draft.PROMPT_LOOKUP, Draft.HYBRID)


READ_BY: dict[str, tuple[Draft, ...]] = {
    "max_ngram": (Draft.NGRAM, Draft.PROMPT_LOOKUP, Draft.HYBRID),
    "min_ngram": (Draft.NGRAM, Draft.PROMPT_LOOKUP, Draft.HYBRID),
    "occurrence": (Draft.PROMPT_LOOKUP, Draft.HYBRID),
    "max_depth": (Draft.SUFFIX,),
    "factor": (Draft.SUFFIX,),
    "min_prob": (Draft.SUFFIX,),
    "prompts": (Draft.SUFFIX,),
    "draft_temperature": tuple(draft for draft in Draft if draft.needs_proposer),
    "children": tuple(draft for draft in Draft if draft.needs_proposer and draft is not Draft.HYBRID),
    "model": tuple(draft for draft in Draft if draft.has_file),
    "head_k": (Draft.HYBRID,),
}
"""The kinds of draft that a field is about; with any other it must be left as it is, but for none at all."""


class SpecConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to speculate; checked as a whole when made (SpecError): what could not be exact cannot be said.

    Drafts are chains of at most `k` tokens, or of the given `shape`; `k` then follows from it. `prompt_lookup` tries
    suffixes of `max_ngram` down to `min_ngram` tokens, `ngram` is a model of order `max_ngram`.
    """

    draft: Draft
    """Where drafts come from; `none` is plain decoding."""
    k: int = 0
    """Most nodes of a draft: up to 16 of text, 64 else."""
    max_ngram: int = 3
    """Prompt lookup: the longest end of the text that is looked up. N-gram: the order of the model."""
    min_ngram: int = 1
    """Prompt lookup: the shortest end of the text that is looked up."""
    shape: Shape | None = None
    """None is a chain of `k`. Text is a chain; what a suffix continues with is a chain or best first."""
    children: Children = "top"
    """How a node's children are taken from a draft model's law: the best ones, independent draws, or distinct draws."""
    rule: Rule = "resample"
    """How the target judges: by rejection and the residual, by its own draw, or from the leaves up."""
    occurrence: Occurrence = "latest"
    """Of several occurrences of a suffix, the one that is copied from."""
    max_depth: int = 24
    """Suffix: the length of a match and the depth of a node together."""
    factor: float = 1.0
    """Suffix: the most nodes of a draft over the length of the match it continues."""
    min_prob: float = 0.1
    """Suffix: a chain ends below this value; a best-first tree has its own."""
    prompts: bool = False
    """Suffix: prompts of finished requests count too, and not their outputs alone."""
    draft_temperature: float | None = None
    """The temperature of a draft model's law. None: the request's, and 1 where that is 0."""
    model: str = ""
    """The file of the draft model or of the heads; empty where a program makes the proposer itself."""
    head_k: int = 1
    """Hybrid: most tokens that the heads draft, where no text of up to `k` tokens promises more."""

    def __post_init__(self) -> None:
        self._check_draft()
        self._check_shape()
        check_int("min_ngram", self.min_ngram, 1)
        if not is_int(self.max_ngram) or not self.min_ngram <= self.max_ngram <= MAX_MATCH_TOKENS:
            allowed = f"an integer in [{self.min_ngram}, {MAX_MATCH_TOKENS}], min_ngram being {self.min_ngram}"
            raise refuse("max_ngram", self.max_ngram, allowed)
        check_rule(self.rule, self.children)
        check_children(self.tree_shape, self.children)
        if self.occurrence not in ("latest", "earliest"):
            raise refuse("occurrence", self.occurrence, "'latest' or 'earliest'")
        check_int("max_depth", self.max_depth, 2, MAX_MATCH_TOKENS)
        check_probability("min_prob", self.min_prob)
        if not is_number(self.factor) or not (self.factor > 0 and math.isfinite(self.factor)):
            raise refuse("factor", self.factor, "a finite number > 0")
        check_int("head_k", self.head_k, 1, MAX_NODES)
        if self.draft is Draft.HYBRID and self.head_k > self.k:
            raise refuse("head_k", self.head_k, f"at most k ({self.k})")
        if not isinstance(self.model, str):
            raise refuse("model", self.model, "a path, or nothing")
        if self.draft is Draft.HYBRID and self.rule != "match":
            raise refuse("rule", self.rule, "'match' where draft is 'hybrid': which of two drafts is fed is learnt")
        t = self.draft_temperature
        if t is not None and not (is_number(t) and t > 0 and math.isfinite(t)):
            raise refuse("draft_temperature", t, "a finite number > 0, or None")

    def _check_draft(self) -> None:
        try:
            draft = Draft(self.draft)
        except ValueError:
            raise refuse("draft", self.draft, f"one of {', '.join(repr(d.value) for d in Draft)}") from None
        msgspec.structs.force_setattr(self, "draft", draft)
        if draft is Draft.NONE:  # one word switches any drafts off
            return
        for name, default in _defaults().items():
            value, kinds = getattr(self, name), READ_BY.get(name)
            if kinds is not None and draft not in kinds and value != default:
                names = " or ".join(repr(kind.value) for kind in kinds)
                raise refuse(name, value, f"{default!r} where draft is {draft.value!r}: it is for {names}")

    def _check_shape(self) -> None:
        is_short = self.draft in (Draft.NONE, Draft.NGRAM) or self.draft.looks_up
        longest = MAX_DRAFT_TOKENS if is_short else MAX_NODES
        if self.shape is None:
            if not is_int(self.k) or not 1 <= self.k <= longest:
                raise refuse("k", self.k, f"an integer in [1, {longest}], or a shape in its place")
            return
        if self.k not in (0, self.shape.max_nodes):
            raise refuse("k", self.k, f"left out where shape is given: it has {self.shape.max_nodes} nodes")
        msgspec.structs.force_setattr(self, "k", self.shape.max_nodes)
        if not (self.draft.is_text or self.draft.looks_up):
            return
        if isinstance(self.shape, Chain):
            check_int("shape.k", self.shape.k, 1, longest)
            if self.shape.p_min > 0:
                raise refuse("shape.p_min", self.shape.p_min, f"0 where draft is {self.draft.value!r}: it has no law")
        elif self.draft is not Draft.SUFFIX or not isinstance(self.shape, BestFirst):
            allowed = "'chain' or 'best_first'" if self.draft is Draft.SUFFIX else "'chain'"
            raise refuse("shape", self.shape.kind, f"{allowed} where draft is {self.draft.value!r}")

    @classmethod
    def parse(cls, draft: str, k: int) -> Self:
        """Read the two values that say a chain."""
        return cls(draft, k)  # type: ignore[arg-type]  # the constructor turns a draft's name into a Draft

    @property
    def tree_shape(self) -> Shape:
        """The shape of drafts: the one given, or a chain of `k`."""
        return Chain(self.k) if self.shape is None else self.shape

    @property
    def model_shape(self) -> Shape:
        """The shape of what a model drafts."""
        return Chain(self.head_k) if self.draft is Draft.HYBRID else self.tree_shape

    @property
    def is_auto(self) -> bool:
        """How many nodes a tree has is to be found by measurement."""
        return getattr(self.shape, "nodes", None) == AUTO

    def for_request(self, params: SamplingParams, rule: Rule | None = None) -> "SpecConfig":
        """Give the configuration that a request of these parameters is drafted and judged by; it may have its own rule.

        At temperature 0 nothing is drawn: children are the best ones, and every rule says the same. Raises SpecError
        for a rule that is none, or that does not go with drawn children.
        """
        if rule is not None and rule not in RULES:
            raise refuse("rule", rule, f"one of {', '.join(map(repr, RULES))}")
        if params.is_greedy:
            is_plain = self.children == "top" and self.rule == "match"
            return self if is_plain else _greedy(self)
        return self if rule in (None, self.rule) else msgspec.structs.replace(self, rule=rule)

    def draft_params(self, params: SamplingParams) -> SamplingParams:
        """Give the parameters of a draft model's law: the request's, at the temperature of drafts."""
        temperature = self.draft_temperature or params.temperature or 1.0
        return msgspec.structs.replace(params, temperature=temperature)


@functools.cache
def _defaults() -> dict[str, object]:
    return {field.name: field.default for field in msgspec.structs.fields(SpecConfig)}


@functools.lru_cache(64)
def _greedy(config: SpecConfig) -> SpecConfig:
    """Give what requests at temperature 0 share: to check it anew for each would cost more than a round."""
    return msgspec.structs.replace(config, children="top", rule="match")
