"""The mathematics of one speculative round: draft, distribution, verification, and the one-sequence loop.

Pure: no clock, no I/O, no global state; all randomness comes in as a generator.
"""

from spec.batch import Round, verify_batch, verify_round
from spec.choices import CHILDREN, RULES, Children, Rule, check_rule
from spec.config import MAX_DRAFT_TOKENS, Draft, Occurrence, SpecConfig
from spec.distribution import Row, apply_penalties, argmax, dense_distribution, sample, sample_dense
from spec.drafter import Drafter
from spec.drafts import ngram_draft, prompt_lookup, propose
from spec.errors import SpecError
from spec.finished import FinishedRequests
from spec.growth import Drafted, Growth, grow
from spec.layout import max_nodes
from spec.loop import Generated, SpecStats, generate, generate_stream
from spec.params import SamplingParams
from spec.rng import Pcg32, draft_stream, stream
from spec.sequoia import Paying, nodes_that_pay, sequoia_nodes
from spec.shapes import AUTO, BestFirst, Chain, Dynamic, Expansion, Sequoia, Shape, Static
from spec.target import BoundedTarget, Proposer, Target, TreeTarget
from spec.tree import MAX_NODES, NO_DRAFT, Compaction, DraftTree, compaction
from spec.verify import Verified, residual, speculative_step, verify_draft
from spec.verify_tree import verify_tree
from spec.vocabulary import DraftVocabulary

__all__ = [
    "AUTO",
    "CHILDREN",
    "MAX_DRAFT_TOKENS",
    "MAX_NODES",
    "NO_DRAFT",
    "RULES",
    "BestFirst",
    "BoundedTarget",
    "Chain",
    "Children",
    "Compaction",
    "Draft",
    "DraftTree",
    "DraftVocabulary",
    "Drafted",
    "Drafter",
    "Dynamic",
    "Expansion",
    "FinishedRequests",
    "Generated",
    "Growth",
    "Occurrence",
    "Paying",
    "Pcg32",
    "Proposer",
    "Round",
    "Row",
    "Rule",
    "SamplingParams",
    "Sequoia",
    "Shape",
    "SpecConfig",
    "SpecError",
    "SpecStats",
    "Static",
    "Target",
    "TreeTarget",
    "Verified",
    "apply_penalties",
    "argmax",
    "check_rule",
    "compaction",
    "dense_distribution",
    "draft_stream",
    "generate",
    "generate_stream",
    "grow",
    "max_nodes",
    "ngram_draft",
    "nodes_that_pay",
    "prompt_lookup",
    "propose",
    "residual",
    "sample",
    "sample_dense",
    "sequoia_nodes",
    "speculative_step",
    "stream",
    "verify_batch",
    "verify_draft",
    "verify_round",
    "verify_tree",
]
