"""An engine that gives up: its clients are told, streaming or not, and so is whoever asks for its health."""

import contextlib
import json

import httpx
import pytest

from actors import Engine, EngineConfig
from models.toy import ToyModel, ToyTokenizer
from server.app import build_app
from server.config import ServerConfig
from server.model import Served
from server.service import Service


class Failing(ToyModel):
    """Fails in its third pass, and in those after it if it is broken."""

    def __init__(self, is_broken):
        super().__init__(0, 1, 800.0)
        self.is_broken = is_broken
        self.num_passes = 0

    def forward(self, chunks):
        self.num_passes += 1
        if self.num_passes == 3 or (self.is_broken and self.num_passes > 3):
            raise RuntimeError("out of luck")
        return super().forward(chunks)


@contextlib.asynccontextmanager
async def client_and_service(model, **config):
    served = Served(model, ToyTokenizer(), "fake", None)
    async with Engine(served.model, EngineConfig(num_blocks=64, **config)) as engine:
        service = Service(engine, served, ServerConfig())
        transport = httpx.ASGITransport(build_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield client, service


@contextlib.asynccontextmanager
async def client_of(model, **config):
    async with client_and_service(model, **config) as (client, _):
        yield client


@pytest.mark.parametrize("stream", [True, False])
async def test_clients_are_told(stream):
    async with client_of(Failing(is_broken=True), max_restarts=0) as client:
        assert (await client.get("/health")).status_code == 200
        body = {"prompt": "ba", "max_tokens": 50, "ignore_eos": True, "stream": stream}
        answer = await client.post("/v1/completions", json=body)
        if stream:
            *chunks, error, end = [part.removeprefix("data: ") for part in answer.text.strip().split("\n\n")]
            assert len(chunks) == 2
            assert end == "[DONE]"
            told = json.loads(error)["error"]
        else:
            assert answer.status_code == 500
            told = answer.json()["error"]
        assert (told["type"], told["code"]) == ("server_error", "engine_failed")
        assert "out of luck" in told["message"]
        told = (await client.get("/metrics")).text
        assert 'vllm:request_success_total{finished_reason="error",model_name="fake"} 1.0' in told
        health = await client.get("/health")
        assert (health.status_code, health.json()["error"]["code"]) == (503, "engine_failed")
        again = await client.post("/v1/completions", json=body)
        assert (again.status_code, again.json()["error"]["code"]) == (503, "engine_failed")


async def test_a_restart_is_not_seen():
    body = {"prompt": "ba", "max_tokens": 20, "ignore_eos": True, "seed": 3}
    async with client_of(ToyModel(0, 1, 800.0)) as client:
        expected = (await client.post("/v1/completions", json=body)).json()["choices"]
    async with client_of(Failing(is_broken=False)) as client:
        answer = await client.post("/v1/completions", json=body)
        assert answer.json()["choices"] == expected
        assert 'tl_engine_restarts_total{model_name="fake"} 1.0' in (await client.get("/metrics")).text
        assert (await client.get("/health")).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
async def test_nothing_is_opened_while_the_server_closes(stream):
    async with client_and_service(ToyModel(0, 1, 800.0)) as (client, service):
        assert service.close() == 0
        answer = await client.post("/v1/completions", json={"prompt": "ba", "stream": stream})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "shutting_down")
        told = (await client.get("/metrics")).text
        assert 'tl_engine_requests_submitted_total{model_name="fake"} 0.0' in told
