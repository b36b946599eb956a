"""What is refused at the door."""

from spec.errors import said


class RequestError(ValueError):
    """A request, or an engine's configuration, that could never be served; names the field and its value."""


def refuse(field: str, value: object, allowed: str) -> RequestError:
    """Build the error for a bad value: the field, what it holds, what it may hold."""
    return RequestError(said(field, value, allowed))
