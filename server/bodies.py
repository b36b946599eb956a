"""Bodies of requests, read so that nothing in them is ignored."""

import re
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from server.errors import ApiError
from server.wire import NEUTRAL

Body = TypeVar("Body", bound=msgspec.Struct)


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Read a body of JSON. Raises ApiError for one that is too large or called something else."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        #   a page of another site can send no JSON unasked, and so cannot use a server on its reader's machine
        raise ApiError(415, f"content-type is {kind!r}: application/json", code="unsupported_media_type")
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > max_bytes:
            raise ApiError(413, f"the body is larger than {max_bytes} bytes", code="body_too_large")
    return bytes(data)


def decode_body(data: bytes, kind: type[Body]) -> Body:
    """Read a JSON body. Raises ApiError naming the parameter for what is wrong, unknown or not supported."""
    try:
        fields = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(400, f"the body is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ApiError(400, "the body is not a JSON object")
    for name, values in NEUTRAL[kind].items():
        if name in fields and not _is_among(fields[name], values):
            allowed = " or ".join(msgspec.json.encode(v).decode() for v in values)
            raise ApiError(400, f"{name} is not supported: leave it out, or {allowed}", name, "unsupported_parameter")
        fields.pop(name, None)
    try:
        return msgspec.convert(fields, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise _refusal(error, kind) from None


def _is_among(value: Any, allowed: list[Any]) -> bool:
    return any(type(value) is type(v) and value == v for v in allowed)  # 0 is not false, 1 is not true


def _refusal(error: msgspec.ValidationError, kind: type[msgspec.Struct]) -> ApiError:
    message, _, path = str(error).partition(" - at `$")
    param = path.rstrip("`").lstrip(".") or None
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", message)
    if unknown is not None:
        name = unknown[1] if param is None else f"{param}.{unknown[1]}"
        known = f"; known are {', '.join(kind.__struct_fields__)}" if param is None else ""
        return ApiError(400, f"{name} is not supported{known}", name, "unsupported_parameter")
    missing = re.fullmatch(r"Object missing required field `(.*)`", message)
    if missing is not None:
        param = missing[1] if param is None else f"{param}.{missing[1]}"
        return ApiError(400, f"{param} is missing", param, "missing_required_parameter")
    return ApiError(400, f"{param}: {message}" if param else message, param, "invalid_value")
