"""Traces of recorded traffic, in the layouts that they are published in."""

from sims.traces.reading import FORMATS, read_trace, says_prompts
from sims.traces.trace import Trace, TraceRow

__all__ = ["FORMATS", "Trace", "TraceRow", "read_trace", "says_prompts"]
