"""One model behind HTTP: the endpoints."""

import time
from pathlib import Path

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from actors import Engine
from server.bodies import decode_body, read_body
from server.config import ServerConfig
from server.errors import ApiError, json_response
from server.generation import LEFT, Generation
from server.job import JobReader
from server.keys import Keys
from server.live import Live
from server.metrics import Metrics
from server.model import Served
from server.openapi import openapi
from server.replies import Replies
from server.wire import DetokenizeBody, TokenizeBody

_PAGE = Path(__file__).with_name("page.html")


class Service:
    """What the routes call. Knows every generation that is open."""

    def __init__(self, engine: Engine, served: Served, config: ServerConfig) -> None:
        self._engine = engine
        self._tokenizer = served.tokenizer
        self._model_name = served.name
        self._config = config
        self._reader = JobReader(served.name, served.tokenizer, config, engine.config, served.model.max_model_len)
        self._keys = Keys(config.api_keys)
        self._metrics = Metrics(engine, served.name)
        self._live = Live(engine, served.name)
        self._open: set[Generation] = set()
        self._is_closing = False
        self._created = int(time.time())

    # generations

    async def completions(self, request: Request) -> Response:
        """`POST /v1/completions`."""
        return await self._generate(request, is_chat=False)

    async def chat_completions(self, request: Request) -> Response:
        """`POST /v1/chat/completions`."""
        return await self._generate(request, is_chat=True)

    async def _generate(self, request: Request, *, is_chat: bool) -> Response:
        try:
            salt = self._keys.salt(request)
            data = await read_body(request, self._config.max_body_bytes)
            job = await (self._reader.chat(data, salt) if is_chat else self._reader.completion(data, salt))
        except ApiError as error:
            self._count(is_chat, error.status)
            raise
        replies = Replies(job, self._model_name, self._tokenizer)
        return Generation(job, replies, self._engine, self, self._metrics.latencies, self._config)

    def opened(self, generation: Generation) -> None:
        """Take note of a generation that begins; refuse it where the server is about to end."""
        if self._is_closing:
            raise ApiError(503, "the server is shutting down", code="shutting_down")
        self._open.add(generation)

    def closed(self, generation: Generation) -> None:
        """Take note of one that has ended or was left."""
        self._open.discard(generation)
        self._count(generation.job.is_chat, generation.status)
        if generation.status == LEFT:
            self._live.left(generation)

    def close(self) -> int:
        """Cancel whatever is open, and open nothing more; how many generations were cut short."""
        self._is_closing = True
        cut = list(self._open)
        for generation in cut:
            generation.let_go()
        return len(cut)

    def _count(self, is_chat: bool, status: int) -> None:
        endpoint = "/v1/chat/completions" if is_chat else "/v1/completions"
        self._metrics.answers.labels(endpoint, str(status)).inc()

    # everything else

    async def models(self, request: Request) -> Response:
        """`GET /v1/models`."""
        self._keys.salt(request)
        name = self._model_name
        model = {"id": name, "object": "model", "created": self._created, "owned_by": "outrider", "root": name}
        return json_response({"object": "list", "data": [model]})

    async def tokenize(self, request: Request) -> Response:
        """`POST /tokenize`."""
        self._keys.salt(request)
        body = decode_body(await read_body(request, self._config.max_body_bytes), TokenizeBody)
        self._reader.check_model(body.model)
        tokens = await self._reader.encode(body.prompt)
        return json_response({"tokens": tokens, "count": len(tokens)})

    async def detokenize(self, request: Request) -> Response:
        """`POST /detokenize`."""
        self._keys.salt(request)
        body = decode_body(await read_body(request, self._config.max_body_bytes), DetokenizeBody)
        self._reader.check_model(body.model)
        try:
            return json_response({"prompt": self._tokenizer.decode(body.tokens)})
        except ValueError as error:
            raise ApiError(400, f"tokens: {error}", "tokens", "invalid_value") from None

    async def health(self, _: Request) -> Response:
        """`GET /health`: 503 once the engine has given up."""
        if self._engine.failure is not None:
            raise ApiError(503, f"the engine has failed: {self._engine.failure}", code="engine_failed")
        return json_response({"status": "ok"})

    async def metrics(self, _: Request) -> Response:
        """`GET /metrics`."""
        return Response(self._metrics.render(), headers={"content-type": CONTENT_TYPE_LATEST})

    async def live(self, request: Request) -> Response:
        """`GET /live`: what the page draws."""
        self._keys.salt(request)
        return json_response(self._live.state(self._open))

    async def page(self, _: Request) -> Response:
        """`GET /`: the live page."""
        return HTMLResponse(_PAGE.read_text(encoding="utf-8"))

    async def openapi(self, _: Request) -> Response:
        """`GET /openapi.json`."""
        return Response(msgspec.json.encode(openapi(self._model_name)), media_type="application/json")

    async def sample(self) -> None:
        """Watch the engine for the live page, for ever."""
        await self._live.sample()
