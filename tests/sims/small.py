"""Small simulations that the tests share."""

import msgspec

from scheduler import EngineConfig
from sims.arrivals import Closed
from sims.config import SimConfig
from sims.leaving import Leaving
from sims.lengths import Lengths
from sims.prompts import Prompts
from spec import SpecConfig

ENGINE = EngineConfig(
    num_blocks=48,
    block_tokens=4,
    max_batch_tokens=64,
    max_running=12,
    max_model_len=96,
    speculative=SpecConfig.parse("prompt_lookup", 3),
)
SMALL = SimConfig(
    seed=7,
    requests=60,
    engine=ENGINE,
    arrivals=Closed(16),
    prompt_tokens=Lengths.parse("2-24"),
    output_tokens=Lengths.parse("1-24"),
    prompts=Prompts(shared_tokens=8, num_shared=2),
    leaving=Leaving(cancel_rate=0.3),
    compare=60,
)


def small(**changes):
    """SMALL with other fields."""
    return msgspec.structs.replace(SMALL, **changes)


def comparable(report):
    """All of a report that a seed determines."""
    return msgspec.json.encode(msgspec.structs.replace(report, wall_s=0.0))
