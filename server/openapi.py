"""The server's OpenAPI document, from the structs its bodies are read with."""

from typing import Any

import msgspec

from server.parameters import BODIES, NESTED, NEUTRAL, NOTHING, TAKEN
from server.schema import BOUNDS
from server.wire import ChatBody, CompletionBody, DetokenizeBody, TokenizeBody
from spec import BestFirst, Chain

_REF = "#/components/schemas/{name}"
_STRING = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}


def openapi(model_name: str, *, is_strict: bool) -> dict[str, Any]:
    """Build the document for the model that is served."""
    (_, components) = msgspec.json.schema_components(BODIES, ref_template=_REF)
    bodies: set[type[msgspec.Struct]] = {*BODIES, *(kind for nested in NESTED.values() for kind in nested.values())}
    for shape in (Chain, BestFirst):
        for name, bounds in BOUNDS[shape].items():
            components[shape.__name__]["properties"][name] |= bounds
    for body in bodies:
        _complete(components[body.__name__], body, model_name, is_strict=is_strict)
    components |= _answers()
    return {
        "openapi": "3.1.0",
        "info": {"title": "Outrider", "version": "1"},
        "paths": {
            "/v1/completions": _post(CompletionBody, "Completion", "Generate completions.", generates=True),
            "/v1/chat/completions": _post(ChatBody, "ChatCompletion", "Answer a conversation.", generates=True),
            "/tokenize": _post(TokenizeBody, "Tokens", "Text to token ids."),
            "/detokenize": _post(DetokenizeBody, "Text", "Token ids to text."),
            "/v1/models": _get("Models", "The model that is served.", has_key=True),
            "/v1/models/{id}": _get("Model", "The model of this name.", has_key=True, may_miss=True),
            "/health": _get("Health", "Whether the engine works.", may_fail=True),
            "/live": _get("Live", "What the live page draws.", has_key=True),
            "/metrics": _get(None, "Prometheus metrics.", media="text/plain"),
            "/openapi.json": _get("Document", "This document."),
            "/": _get(None, "The live page.", media="text/html"),
        },
        "components": {"schemas": components, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }


def _complete(schema: dict[str, Any], body: type[msgspec.Struct], model_name: str, *, is_strict: bool) -> None:
    """Say what the struct cannot: the one model, and parameters that have but one meaning here, or none."""
    properties = schema["properties"]
    if "model" in properties:
        properties["model"] = {"enum": [model_name]}
    for choice in properties.get("logit_bias", {}).get("anyOf", ()):
        if choice.get("type") == "object":
            choice["propertyNames"] = {"pattern": "^(0|[1-9][0-9]{0,8})$"}
    properties |= {name: {"enum": values} for name, values in NEUTRAL.get(body, {}).items()}
    required = schema.get("required", [])
    for name, told in properties.items():
        if name not in required:  # null, or empty, is as good as absent
            told.pop("default", None)
            properties[name] = {"anyOf": [told, {"enum": NOTHING}]}
    properties |= {name: {} for name in TAKEN.get(body, ())}
    schema["additionalProperties"] = not is_strict


def _answers() -> dict[str, Any]:
    error = _object(
        message=_STRING, type=_STRING, param={"type": ["string", "null"]}, code={"type": ["string", "null"]}
    )
    usage = _object(prompt_tokens=_COUNT, completion_tokens=_COUNT, total_tokens=_COUNT)
    head = {"id": _STRING, "created": _COUNT, "model": _STRING, "usage": usage, "metrics": {"type": "object"}}
    model = _object(id=_STRING, object={"const": "model"}, created=_COUNT, owned_by=_STRING)
    reason = {"enum": ["stop", "length"]}
    message = _object(role={"const": "assistant"}, content=_STRING)
    said = _object(index=_COUNT, text=_STRING, finish_reason=reason)
    chat_said = _object(index=_COUNT, message=message, finish_reason=reason)
    ids = {"type": "array", "items": _COUNT}
    return {
        "Error": _object(error=error),
        "Completion": _object(**head, object={"const": "text_completion"}, choices=_list(said)),
        "ChatCompletion": _object(**head, object={"const": "chat.completion"}, choices=_list(chat_said)),
        "Tokens": _object(tokens=ids, count=_COUNT),
        "Text": _object(prompt=_STRING),
        "Models": _object(object={"const": "list"}, data=_list(model)),
        "Model": model,
        "Health": _object(status={"const": "ok"}),
        "Live": {"type": "object"},
        "Document": {"type": "object"},
    }


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _json(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(name=name)}}}


def _errors(*statuses: int) -> dict[str, Any]:
    return {str(status): {"description": "Refused.", "content": _json("Error")} for status in statuses}


def _post(body: type[msgspec.Struct], answer: str, summary: str, *, generates: bool = False) -> dict[str, Any]:
    content = _json(answer)
    if generates:
        content["text/event-stream"] = {"schema": _object(data=_STRING)}
    responses = {"200": {"description": "Done.", "content": content}, **_errors(400, 401, 403, 404, 413, 415)}
    if generates:
        responses |= _errors(429, 500, 503)
    request = {"required": True, "content": _json(body.__name__)}
    return {"post": {"summary": summary, "requestBody": request, "responses": responses, "security": [{}, {"key": []}]}}


def _get(
    answer: str | None,
    summary: str,
    *,
    media: str = "",
    has_key: bool = False,
    may_fail: bool = False,
    may_miss: bool = False,
) -> dict[str, Any]:
    content = {media: {"schema": {"type": "string"}}} if answer is None else _json(answer)
    responses = {"200": {"description": "Done.", "content": content}}
    responses |= _errors(401) if has_key else {}
    responses |= _errors(503) if may_fail else {}
    responses |= _errors(404) if may_miss else {}
    operation: dict[str, Any] = {"summary": summary, "responses": responses}
    if may_miss:
        operation["parameters"] = [{"name": "id", "in": "path", "required": True, "schema": _STRING}]
    return {"get": {**operation, "security": [{}, {"key": []}]} if has_key else operation}
