"""The one error of this package, and the checks that many fields share."""

import sys
from typing import TypeGuard


class SpecError(ValueError):
    """A parameter, a row, a draft or a shape that the mathematics cannot take; names the field and its value."""


def refuse(field: str, value: object, allowed: str) -> SpecError:
    """Build the error for a bad value: the field, what it holds, what it may hold."""
    return SpecError(said(field, value, allowed))


def said(field: str, value: object, allowed: str) -> str:
    """Say what is wrong with a value, however large it is."""
    try:
        shown = repr(value)
    except ValueError:  # an integer of thousands of digits
        shown = f"an {type(value).__name__} too long to be written"
    if len(shown) > _LONGEST:
        shown = f"{shown[:_LONGEST]}..."
    return f"{field} is {shown}: {allowed}"


_LARGEST = int(sys.float_info.max)
_LONGEST = 200  # characters of a value that an error repeats


def is_int(value: object) -> TypeGuard[int]:
    """Tell whether a value is an integer; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Tell whether a value is a number that a float can hold; true and false are none."""
    if isinstance(value, float):
        return True
    return is_int(value) and -_LARGEST <= value <= _LARGEST


def check_int(field: str, value: object, low: int, high: int | None = None) -> None:
    """Raise SpecError unless `value` is an integer of at least `low` and, where that is given, at most `high`."""
    if not is_int(value) or value < low or (high is not None and value > high):
        raise refuse(field, value, f"an integer >= {low}" if high is None else f"an integer in [{low}, {high}]")


def check_probability(field: str, value: object) -> None:
    """Raise SpecError unless `value` is a number in [0, 1]."""
    if not is_number(value) or not 0 <= value <= 1:
        raise refuse(field, value, "a number in [0, 1]")
