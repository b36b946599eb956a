"""Bodies of requests, read so that nothing in them that would change an answer is ignored."""

import logging
import re
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, TypeVar

import anyio
import msgspec
from starlette.requests import ClientDisconnect, Request

from server.config import ServerConfig
from server.errors import ApiError, invalid
from server.parameters import NESTED, NEUTRAL, NOTHING, TAKEN

Body = TypeVar("Body", bound=msgspec.Struct)
T = TypeVar("T")

_MAX_LOGGED_NAMES = 100
_MAX_UNKNOWN = 100
_MAX_PARTS = 8192  # messages, and the parts of them
_LARGE_BYTES = 16 * 1024
_REST = 4

_log = logging.getLogger("outrider.server")


async def while_there(request: Request, num_bytes: int, work: Callable[[], Awaitable[T]]) -> T:
    """Do what a large body asks for, unless its client leaves: then drop it, and raise ClientDisconnect."""
    if num_bytes < _LARGE_BYTES:
        return await work()
    done: list[T] = []
    errors: list[ApiError] = []

    async def watch(scope: anyio.CancelScope) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch, tasks.cancel_scope)
        try:
            done.append(await work())
        except ApiError as error:
            errors.append(error)
        tasks.cancel_scope.cancel()
    if errors:
        raise errors[0]
    if not done:
        raise ClientDisconnect
    return done[0]


class BodyReader:
    """Reads bodies of JSON.

    A parameter that is null or empty is as good as absent. One that nobody knows is refused where the server is strict;
    elsewhere it is taken without effect, counted, and named in the log the first time.
    """

    def __init__(self, config: ServerConfig, count_unknown: Callable[[int], None]) -> None:
        self._max_bytes = config.max_body_bytes
        self._is_strict = config.strict
        self._count_unknown = count_unknown
        self._logged: set[str] = set()
        self._turn = anyio.Lock()

    async def read(self, request: Request) -> bytes:
        """Read a body of JSON. Raises ApiError for one that is too large or called something else."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            #   a page of another site can send no JSON unasked, and so cannot use a server on its reader's machine
            raise ApiError(415, f"content-type is {kind!r}: application/json", code="unsupported_media_type")
        told = request.headers.get("content-length", "")
        if told.isdecimal() and int(told) > self._max_bytes:
            raise self._too_large()
        data = bytearray()
        async for part in request.stream():
            data += part
            if len(data) > self._max_bytes:
                raise self._too_large()
        return bytes(data)

    async def decode(self, data: bytes, kind: type[Body]) -> Body:
        """Read a JSON body. Raises ApiError naming the parameter for what is wrong or not supported."""
        if len(data) < _LARGE_BYTES:
            return self._decode(data, kind)
        async with self._turn:
            start_s = anyio.current_time()
            try:
                return self._decode(data, kind)
            finally:  # one at a time, and most of the time is everybody else's
                await anyio.sleep(_REST * (anyio.current_time() - start_s))

    def _decode(self, data: bytes, kind: type[Body]) -> Body:
        try:
            fields = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ApiError(400, f"the body is not JSON: {error}") from None
        if not isinstance(fields, dict):
            raise ApiError(400, "the body is not a JSON object")
        tidying = _Tidying()
        tidying.tidy(fields, kind, "")
        if tidying.unknown:
            self._note(tidying.unknown, kind)
        try:
            return msgspec.convert(fields, kind, str_keys=True)
        except msgspec.ValidationError as error:
            raise _refusal(error) from None

    def _too_large(self) -> ApiError:
        return ApiError(413, f"the body is larger than {self._max_bytes} bytes", code="body_too_large")

    def _note(self, unknown: list[str], kind: type[msgspec.Struct]) -> None:
        if self._is_strict:
            known = "" if "." in unknown[0] else f"; known are {', '.join(kind.__struct_fields__)}"
            raise ApiError(400, f"{unknown[0]} is not supported{known}", unknown[0], "unsupported_parameter")
        self._count_unknown(len(unknown))
        for name in unknown:
            place = re.sub(r"\[\d+\]", "[]", name)
            if len(self._logged) < _MAX_LOGGED_NAMES and place not in self._logged:
                self._logged.add(place)
                _log.warning("a request has %.80r, which is not known here and has no effect", place)


class _Tidying:
    """Takes out of a body what asks for nothing, refuses what is not supported, and collects what is unknown."""

    def __init__(self) -> None:
        self.unknown: list[str] = []
        self._num_parts = 0

    def tidy(self, fields: dict[str, Any], kind: type[msgspec.Struct], path: str) -> None:
        """Tidy the fields of one struct, which stands at `path`, and of those within."""
        known, taken, neutral = _known(kind), TAKEN.get(kind, ()), NEUTRAL.get(kind, {})
        for name in list(fields):
            value, is_required = fields[name], known.get(name)
            if is_required or (is_required is not None and not _is_among(value, NOTHING)):
                continue
            if name in neutral and not _is_among(value, NOTHING) and not _is_among(value, neutral[name]):
                raise _unsupported(path + name, neutral[name])
            if is_required is None and name not in taken and name not in neutral and not _is_among(value, NOTHING):
                self._note(path + name)
            del fields[name]
        for name, inner in NESTED.get(kind, {}).items():
            value = fields.get(name)
            if isinstance(value, dict):
                self.tidy(value, inner, f"{path}{name}.")
            elif isinstance(value, list):
                self._count(len(value), path + name)
                for i, item in enumerate(value):
                    if isinstance(item, dict):
                        self.tidy(item, inner, f"{path}{name}[{i}].")

    def _note(self, place: str) -> None:
        self.unknown.append(place)
        if len(self.unknown) > _MAX_UNKNOWN:
            message = f"more than {_MAX_UNKNOWN} parameters are not known here, {place:.80} among them"
            raise ApiError(400, message, f"{place:.80}", "unsupported_parameter")

    def _count(self, num_parts: int, place: str) -> None:
        self._num_parts += num_parts
        if self._num_parts > _MAX_PARTS:
            raise invalid(place, f"more than {_MAX_PARTS} messages and parts of them")


def _unsupported(place: str, allowed: list[Any]) -> ApiError:
    others = " or ".join(msgspec.json.encode(value).decode() for value in allowed)
    message = f"{place} is not supported: leave it out{', ' if others else ''}{others}"
    return ApiError(400, message, place, "unsupported_parameter")


@cache
def _known(kind: type[msgspec.Struct]) -> dict[str, bool]:
    """List the fields of a struct; True for those that must be there."""
    return {field.name: field.required for field in msgspec.structs.fields(kind)}


def _is_among(value: Any, allowed: list[Any]) -> bool:
    #   0 is not false, 1 is not true, and 1.0 is 1
    return any(isinstance(value, bool) == isinstance(v, bool) and value == v for v in allowed)


def _refusal(error: msgspec.ValidationError) -> ApiError:
    message, _, path = str(error).partition(" - at `$")
    param = path.rstrip("`").lstrip(".") or None
    missing = re.fullmatch(r"Object missing required field `(.*)`", message)
    if missing is not None:
        param = missing[1] if param is None else f"{param}.{missing[1]}"
        return ApiError(400, f"{param} is missing", param, "missing_required_parameter")
    return ApiError(400, f"{param}: {message}" if param else message, param, "invalid_value")
