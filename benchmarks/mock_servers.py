"""Servers that answer at once with made-up text, to be measured beside ours: 64 tokens, one event each, no model.

`python -m benchmarks.mock_servers PORT` is the echo.
"""

import shutil
import sys
from collections.abc import AsyncIterator, Callable

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

NUM_TOKENS = 64

_NODE = """
const http = require("http");
const head = { id: "cmpl-0", object: "text_completion", created: 0, model: "fake" };
const choice = (text, finish_reason) => ({ index: 0, text, logprobs: null, finish_reason });
http.createServer((request, response) => {
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", async () => {
    const body = JSON.parse(Buffer.concat(parts));
    if (!body.stream) {
      response.setHeader("content-type", "application/json");
      const usage = { prompt_tokens: 4, completion_tokens: body.max_tokens, total_tokens: 4 + body.max_tokens };
      const choices = [choice(" lama".repeat(body.max_tokens), "length")];
      return response.end(JSON.stringify({ ...head, choices, usage }));
    }
    response.setHeader("content-type", "text/event-stream");
    for (let i = 1; i <= body.max_tokens; i++) {
      const choices = [choice(" lama", i === body.max_tokens ? "length" : null)];
      response.write(`data: ${JSON.stringify({ ...head, choices })}\\n\\n`);
      await new Promise(setImmediate);
    }
    response.end("data: [DONE]\\n\\n");
  });
}).listen(Number(process.argv[1]), "127.0.0.1");
"""


def found() -> dict[str, Callable[[int], list[str]]]:
    """Name the mocks that this machine has, and how each is started on a port."""
    mocks: dict[str, Callable[[int], list[str]]] = {
        "an SSE echo on starlette and uvicorn": lambda port: [sys.executable, "-m", __name__, str(port)]
    }
    if shutil.which("node"):
        mocks["20 lines on node's http"] = lambda port: ["node", "-e", _NODE, str(port)]
    if shutil.which("guidellm"):
        timing = ["--request-latency", "0", "--ttft-ms", "0", "--itl-ms", "0"]
        mocks["guidellm mock-server"] = lambda port: ["guidellm", "mock-server", "--port", str(port), *timing]
    return mocks


async def _echo(request: Request) -> Response:
    body = msgspec.json.decode(await request.body())
    head = {"id": "cmpl-0", "object": "text_completion", "created": 0, "model": "fake"}

    def choice(text: str, reason: str | None) -> dict[str, object]:
        return {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}

    if not body["stream"]:
        said = choice(" lama" * body["max_tokens"], "length")
        return Response(msgspec.json.encode({**head, "choices": [said]}), media_type="application/json")

    async def events() -> AsyncIterator[bytes]:
        for i in range(1, body["max_tokens"] + 1):
            said = choice(" lama", "length" if i == body["max_tokens"] else None)
            yield b"data: " + msgspec.json.encode({**head, "choices": [said]}) + b"\n\n"
        yield b"data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


if __name__ == "__main__":
    app = Starlette(routes=[Route("/v1/completions", _echo, methods=["POST"])])
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", access_log=False)
