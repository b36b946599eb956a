"""The mathematics of one speculative round: draft, distribution, verification, and the one-sequence loop.

Pure: no clock, no I/O, no global state; all randomness comes in as a generator.
"""

from spec.batch import Round, verify_batch, verify_round
from spec.distribution import apply_penalties, argmax, dense_distribution, sample, sample_dense
from spec.drafter import Drafter
from spec.drafts import ngram_draft, prompt_lookup, propose
from spec.errors import SpecError
from spec.loop import BoundedTarget, Generated, SpecStats, Target, generate, generate_stream
from spec.params import MAX_DRAFT_TOKENS, Draft, SamplingParams, SpecConfig
from spec.rng import Pcg32, draft_stream, stream
from spec.verify import Rule, Verified, residual, speculative_step, verify_draft

__all__ = [
    "MAX_DRAFT_TOKENS",
    "BoundedTarget",
    "Draft",
    "Drafter",
    "Generated",
    "Pcg32",
    "Round",
    "Rule",
    "SamplingParams",
    "SpecConfig",
    "SpecError",
    "SpecStats",
    "Target",
    "Verified",
    "apply_penalties",
    "argmax",
    "dense_distribution",
    "draft_stream",
    "generate",
    "generate_stream",
    "ngram_draft",
    "prompt_lookup",
    "propose",
    "residual",
    "sample",
    "sample_dense",
    "speculative_step",
    "stream",
    "verify_batch",
    "verify_draft",
    "verify_round",
]
