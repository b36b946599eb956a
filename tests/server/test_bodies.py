"""Nothing in a request is ignored: what is not supported is refused by name."""

import json

import pytest

from actors import EngineConfig
from models.toy import ToyTokenizer
from server.config import ServerConfig
from server.errors import ApiError
from server.job import JobReader

CHAT = {"messages": [{"role": "user", "content": "ba"}]}
COMPLETION = {"prompt": "ba"}
LIMITS = ServerConfig(max_choices=4, max_stop_strings=2, max_stop_chars=5, max_logit_bias=2, max_output_tokens=100)


async def read(body, limits=LIMITS):
    reader = JobReader("fake", ToyTokenizer(), limits, EngineConfig(max_model_len=64), 1000)
    data = json.dumps(body).encode()
    return await (reader.chat(data, None) if "messages" in body else reader.completion(data, None))


async def refusal(body):
    with pytest.raises(ApiError) as raised:
        await read(body)
    return raised.value


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({**COMPLETION, "foo": 1}, "foo", "unsupported_parameter"),
        ({**COMPLETION, "echo": True}, "echo", "unsupported_parameter"),
        ({**COMPLETION, "best_of": 2}, "best_of", "unsupported_parameter"),
        ({**COMPLETION, "best_of": True}, "best_of", "unsupported_parameter"),
        ({**COMPLETION, "suffix": "x"}, "suffix", "unsupported_parameter"),
        ({**COMPLETION, "user": "x"}, "user", "unsupported_parameter"),
        ({**COMPLETION, "logprobs": 3}, "logprobs", "invalid_value"),
        ({**COMPLETION, "model": "gpt"}, "model", "model_not_found"),
        ({**COMPLETION, "temperature": -1}, "temperature", "invalid_value"),
        ({**COMPLETION, "temperature": "hot"}, "temperature", "invalid_value"),
        ({**COMPLETION, "top_p": 0}, "top_p", "invalid_value"),
        ({**COMPLETION, "priority": -1}, "priority", "invalid_value"),
        ({**COMPLETION, "repetition_penalty": 1e-9}, "repetition_penalty", "invalid_value"),
        ({**COMPLETION, "n": 0}, "n", "invalid_value"),
        ({**COMPLETION, "n": 5}, "n", "invalid_value"),
        ({"prompt": ["a", "b", "c"], "n": 2}, "n", "invalid_value"),
        ({"prompt": []}, "prompt", "invalid_value"),
        ({"prompt": [1, "a"]}, "prompt", "invalid_value"),
        ({"prompt": ["a"] * 5}, "prompt", "invalid_value"),
        ({}, "prompt", "missing_required_parameter"),
        ({**COMPLETION, "stop": ["a"] * 3}, "stop", "invalid_value"),
        ({**COMPLETION, "stop": ""}, "stop", "invalid_value"),
        ({**COMPLETION, "stop": "abcdef"}, "stop", "invalid_value"),
        ({**COMPLETION, "logit_bias": {"1": 1, "2": 1, "3": 1}}, "logit_bias", "invalid_value"),
        ({**COMPLETION, "max_tokens": 101}, "max_tokens", "invalid_value"),
        ({**COMPLETION, "stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
        ({**COMPLETION, "stream": True, "stream_options": {"foo": 1}}, "stream_options.foo", "unsupported_parameter"),
        ({**COMPLETION, "speculative": {"draft": "magic"}}, "speculative.draft", "invalid_value"),
        ({**CHAT, "tools": [{}]}, "tools", "unsupported_parameter"),
        ({**CHAT, "response_format": {"type": "json_object"}}, "response_format", "unsupported_parameter"),
        ({**CHAT, "top_logprobs": 2}, "top_logprobs", "unsupported_parameter"),
        ({**CHAT, "max_tokens": 1, "max_completion_tokens": 1}, "max_tokens", "invalid_value"),
        ({"messages": []}, "messages", "invalid_value"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content[0].type",
            "invalid_value",
        ),
        ({"messages": [{"role": "user", "content": "a", "name": "x"}]}, "messages[0].name", "unsupported_parameter"),
    ],
)
async def test_refused_by_name(body, param, code):
    error = await refusal(body)
    told = error.body["error"]
    assert (told["param"], told["code"]) == (param, code)
    assert error.status == (404 if code == "model_not_found" else 400)
    assert param.rpartition(".")[2] in told["message"]


@pytest.mark.parametrize(
    "body",
    [
        {**COMPLETION, "echo": False, "best_of": 1, "suffix": None, "stream_options": None, "stop": None},
        {**CHAT, "tools": None, "response_format": {"type": "text"}, "top_logprobs": 0, "n": None, "store": False},
    ],
)
async def test_asking_for_what_happens_anyway_is_no_refusal(body):
    assert len((await read(body)).requests) == 1


async def test_prompts_times_n():
    job = await read({"prompt": ["ba", [1, 2]], "n": 2, "seed": 7})
    assert [(r.prompt, r.choice, r.seed) for r in job.requests] == [
        (ToyTokenizer().encode("ba"), 0, 7),
        (ToyTokenizer().encode("ba"), 1, 7),
        ([1, 2], 2, 7),
        ([1, 2], 3, 7),
    ]
    assert len({r.id for r in job.requests}) == 4


async def test_every_parameter_arrives():
    body = {
        **COMPLETION,
        "max_tokens": 9,
        "min_tokens": 2,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 5,
        "min_p": 0.1,
        "presence_penalty": 1,
        "frequency_penalty": -1,
        "repetition_penalty": 1.5,
        "logit_bias": {"3": 4},
        "stop_token_ids": [7],
        "priority": 2,
        "verify": "match",
        "speculative": {"draft": "ngram", "k": 3},
    }
    (request,) = (await read(body)).requests
    params = request.params
    assert (params.temperature, params.top_p, params.top_k, params.min_p, params.min_tokens) == (0.5, 0.9, 5, 0.1, 2)
    assert (params.presence_penalty, params.frequency_penalty, params.repetition_penalty) == (1, -1, 1.5)
    assert (params.logit_bias, params.stop_token_ids) == ({3: 4}, (7,))
    assert (request.max_tokens, request.priority, request.verify) == (9, 2, "match")
    assert (request.speculative.draft, request.speculative.k) == ("ngram", 3)
    assert request.eos == (256,)
    assert (await read({**COMPLETION, "ignore_eos": True, "top_k": -1})).requests[0].eos == ()


async def test_chat_may_go_on_as_far_as_there_is_room():
    (request,) = (await read(CHAT)).requests
    assert request.max_tokens == 64 - len(request.prompt) + 1
    (request,) = (await read(CHAT, ServerConfig(max_output_tokens=10))).requests
    assert request.max_tokens == 10


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'"\xff"', b"[" * 100_000, b'{"prompt": "\\ud800"}'])
async def test_bodies_that_are_no_json(data):
    reader = JobReader("fake", ToyTokenizer(), LIMITS, EngineConfig(), 1000)
    with pytest.raises(ApiError, match="body") as raised:
        await reader.completion(data, None)
    assert raised.value.status == 400
