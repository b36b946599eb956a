"""Draft heads on a target's hidden states: linear, medusa, eagle and eagle3. Their files, and what runs them."""

from models.heads.building import HeadsProposer, build_heads
from models.heads.files import read_heads, write_heads
from models.heads.shipped import default_heads
from models.heads.weights import Affine, EagleHeads, Heads, LinearHeads, MedusaHeads, Words, eight_bit, taps_of

__all__ = [
    "Affine",
    "EagleHeads",
    "Heads",
    "HeadsProposer",
    "LinearHeads",
    "MedusaHeads",
    "Words",
    "build_heads",
    "default_heads",
    "eight_bit",
    "read_heads",
    "taps_of",
    "write_heads",
]
