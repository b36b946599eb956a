"""The server's OpenAPI document, from the structs its bodies are read with."""

from typing import Any

import msgspec

from server.wire import NEUTRAL, ChatBody, CompletionBody, DetokenizeBody, TokenizeBody

_REF = "#/components/schemas/{name}"
_BODIES = (CompletionBody, ChatBody, TokenizeBody, DetokenizeBody)
_STRING = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}


def openapi(model_name: str) -> dict[str, Any]:
    """Build the document for the model that is served."""
    (_, components) = msgspec.json.schema_components(_BODIES, ref_template=_REF)
    for body in _BODIES:
        _complete(components[body.__name__], body, model_name)
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
            "/health": _get("Health", "Whether the engine works.", may_fail=True),
            "/live": _get("Live", "What the live page draws.", has_key=True),
            "/metrics": _get(None, "Prometheus metrics.", media="text/plain"),
            "/openapi.json": _get("Document", "This document."),
            "/": _get(None, "The live page.", media="text/html"),
        },
        "components": {"schemas": components, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }


def _complete(schema: dict[str, Any], body: type[msgspec.Struct], model_name: str) -> None:
    """Say what the struct cannot: the one model, and parameters that have but one meaning here."""
    properties = schema["properties"]
    properties["model"] = {"enum": [model_name, None], "default": None}
    properties |= {name: {"enum": values} for name, values in NEUTRAL[body].items()}
    if "logit_bias" in properties:
        for choice in properties["logit_bias"]["anyOf"]:
            choice.pop("propertyNames", None)
            choice["propertyNames"] = {"pattern": "^(0|[1-9][0-9]{0,8})$"} if choice.get("type") == "object" else {}


def _answers() -> dict[str, Any]:
    error = _object(
        message=_STRING, type=_STRING, param={"type": ["string", "null"]}, code={"type": ["string", "null"]}
    )
    usage = _object(prompt_tokens=_COUNT, completion_tokens=_COUNT, total_tokens=_COUNT)
    head = {"id": _STRING, "created": _COUNT, "model": _STRING, "usage": usage, "metrics": {"type": "object"}}
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
        "Models": _object(object={"const": "list"}, data=_list(_object(id=_STRING, object={"const": "model"}))),
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
    responses = {"200": {"description": "Done.", "content": content}, **_errors(400, 401, 404, 413, 415)}
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
) -> dict[str, Any]:
    content = {media: {"schema": {"type": "string"}}} if answer is None else _json(answer)
    responses = {"200": {"description": "Done.", "content": content}}
    responses |= _errors(401) if has_key else {}
    responses |= _errors(503) if may_fail else {}
    operation: dict[str, Any] = {"summary": summary, "responses": responses}
    return {"get": {**operation, "security": [{}, {"key": []}]} if has_key else operation}
