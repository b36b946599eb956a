"""The one error of this package."""


class SpecError(ValueError):
    """A parameter, a row, a draft or a shape that the mathematics cannot take; names the field and its value."""


def refuse(field: str, value: object, allowed: str) -> SpecError:
    """Build the error for a bad value: the field, what it holds, what it may hold."""
    return SpecError(f"{field} is {value!r}: {allowed}")
