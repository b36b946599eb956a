"""What a client is told when something is refused or goes wrong, in OpenAI's shape."""

import secrets
from collections.abc import Mapping

import msgspec
from starlette.responses import Response

_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    405: "not_found_error",
    429: "rate_limit_error",
}


class ApiError(Exception):
    """A refusal: HTTP status, message, and the parameter it is about."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": error_type(status), "param": param, "code": code}}
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """Build the HTTP response."""
        return json_response(self.body, self.status, self.headers)


def invalid(param: str, message: str) -> ApiError:
    """Refuse the value of a parameter."""
    return ApiError(400, f"{param}: {message}", param, "invalid_value")


def too_long(param: str, message: str) -> ApiError:
    """Refuse a prompt that does not fit."""
    return ApiError(400, f"{param}: {message}", param, "context_length_exceeded")


def new_request_id() -> str:
    """Make a name for a request that has none of its own, to be found again by."""
    return f"req-{secrets.token_hex(12)}"


def error_type(status: int) -> str:
    """Name the kind of error as OpenAI's clients know it."""
    return _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")


def json_response(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Build a JSON response."""
    return Response(msgspec.json.encode(content), status, dict(headers or {}), "application/json")
