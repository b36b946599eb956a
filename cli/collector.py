"""The garbage collector's rhythm for a program that is an engine."""

import gc


def calm_collector() -> None:
    """Leave what is here to its long life, and look seldom at the rest.

    What a step makes is gone after it without the collector's help; at its usual rhythm the collector takes a sixth
    of an engine's time to find that out.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
