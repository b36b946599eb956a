"""One model behind HTTP: the endpoints."""

import logging
import time
from pathlib import Path

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from actors import Engine
from server.bodies import BodyReader, while_there
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
from server.scoring import Scorer

_log = logging.getLogger("outrider.server")

_MOST_DIGITS = 10
_PAGE = Path(__file__).with_name("page.html")


class Service:
    """What the routes call. Knows every generation that is open."""

    def __init__(self, engine: Engine, served: Served, config: ServerConfig) -> None:
        self._engine = engine
        self._tokenizer = served.tokenizer
        self._model_name = served.name
        self.config = config
        self.measures = Metrics(engine, served.name)
        self._bodies = BodyReader(config, self.measures.unknown_parameters.inc)
        lengths = engine.config, served.model.max_model_len
        self._reader = JobReader(served.name, served.tokenizer, config, *lengths, self._bodies)
        self._scorer = Scorer(served.model, engine.config.block_tokens)
        self._keys = Keys(config.api_keys)
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
            data = await self._bodies.read(request)
            read = self._reader.chat if is_chat else self._reader.completion
            job = await while_there(request, len(data), lambda: read(data, salt))
        except ApiError as error:
            self._count(is_chat, error.status)
            _log.info("refused with status %d, code %s", error.status, error.body["error"]["code"])
            raise
        replies = Replies(job, self._model_name, self._tokenizer)
        return Generation(job, replies, self._engine, self._scorer, self, self.measures.latencies, self.config)

    def opened(self, generation: Generation) -> None:
        """Take note of a generation that begins; refuse it where the server is about to end."""
        if self._is_closing:
            raise ApiError(503, "the server is shutting down", code="shutting_down")
        self._open.add(generation)

    def closed(self, generation: Generation) -> None:
        """Take note of one that has ended or was left."""
        self._open.discard(generation)
        self._count(generation.job.is_chat, generation.status)
        if _log.isEnabledFor(logging.INFO):
            _log.info("%s", generation.account)
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
        self.measures.answers.labels(endpoint, str(status)).inc()

    # everything else

    async def models(self, request: Request) -> Response:
        """`GET /v1/models`."""
        self._keys.salt(request)
        return json_response({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        """`GET /v1/models/{id}`; an id may have slashes."""
        self._keys.salt(request)
        self._reader.check_model(request.path_params["id"])
        return json_response(self._model())

    def _model(self) -> dict[str, object]:
        name = self._model_name
        return {"id": name, "object": "model", "created": self._created, "owned_by": "outrider", "root": name}

    async def tokenize(self, request: Request) -> Response:
        """`POST /tokenize`."""
        self._keys.salt(request)
        tokens = await self._reader.tokenize(await self._bodies.read(request))
        return json_response({"tokens": tokens, "count": len(tokens)})

    async def detokenize(self, request: Request) -> Response:
        """`POST /detokenize`."""
        self._keys.salt(request)
        return json_response({"prompt": await self._reader.detokenize(await self._bodies.read(request))})

    async def health(self, _: Request) -> Response:
        """`GET /health`: 503 once the engine has given up."""
        if self._engine.failure is not None:
            raise ApiError(503, f"the engine has failed: {self._engine.failure}", code="engine_failed")
        return json_response({"status": "ok"})

    async def metrics(self, _: Request) -> Response:
        """`GET /metrics`."""
        return Response(self.measures.render(), headers={"content-type": CONTENT_TYPE_LATEST})

    async def live(self, request: Request) -> Response:
        """`GET /live`: what the page draws; `?first=N` has the sequences from there on."""
        self._keys.salt(request)
        first = request.query_params.get("first", "0")
        if not (first.isascii() and first.isdecimal() and len(first) < _MOST_DIGITS):
            raise ApiError(400, f"first is {first!r}: an integer >= 0", "first")
        return json_response(self._live.state(self._open, int(first)))

    async def page(self, _: Request) -> Response:
        """`GET /`: the live page."""
        return HTMLResponse(_PAGE.read_text(encoding="utf-8"))

    async def openapi(self, _: Request) -> Response:
        """`GET /openapi.json`."""
        return json_response(openapi(self._model_name, is_strict=self.config.strict))

    async def sample(self) -> None:
        """Watch the engine for the live page, for ever."""
        await self._live.sample()
