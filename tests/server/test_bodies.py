"""Nothing that would change an answer is ignored; what changes nothing is taken."""

import json

import pytest

from actors import EngineConfig
from models.toy import ToyTokenizer
from server.bodies import BodyReader
from server.config import ServerConfig
from server.errors import ApiError
from server.job import JobReader
from server.openapi import openapi
from server.parameters import BODIES, NESTED, NEUTRAL, TAKEN
from spec import BestFirst, SpecConfig

CHAT = {"messages": [{"role": "user", "content": "ba"}]}
COMPLETION = {"prompt": "ba"}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": [1]}'}, "index": 0}
LIMITS = ServerConfig(max_choices=4, max_stop_strings=2, max_stop_chars=5, max_logit_bias=2, max_output_tokens=100)


def reader_of(limits, unknown=None, tokenizer=None, max_model_len=64):
    bodies = BodyReader(limits, ([] if unknown is None else unknown).append)
    config = EngineConfig(max_model_len=max_model_len)
    return JobReader("fake", tokenizer or ToyTokenizer(), limits, config, 1000, bodies)


async def read(body, limits=LIMITS, unknown=None):
    reader = reader_of(limits, unknown)
    data = json.dumps(body).encode()
    return await (reader.chat(data, None) if "messages" in body else reader.completion(data, None))


async def refusal(body, limits=LIMITS):
    with pytest.raises(ApiError) as raised:
        await read(body, limits)
    return raised.value


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({**COMPLETION, "best_of": 2}, "best_of", "unsupported_parameter"),
        ({**COMPLETION, "best_of": True}, "best_of", "invalid_value"),
        ({**CHAT, "best_of": 2}, "best_of", "unsupported_parameter"),
        ({**COMPLETION, "suffix": "x"}, "suffix", "unsupported_parameter"),
        ({**COMPLETION, "n": 2, "best_of": 3}, "best_of", "unsupported_parameter"),
        ({**COMPLETION, "guided_json": {"type": "object"}}, "guided_json", "unsupported_parameter"),
        ({**COMPLETION, "length_penalty": True}, "length_penalty", "unsupported_parameter"),
        ({**COMPLETION, "echo": 0}, "echo", "invalid_value"),
        ({**COMPLETION, "use_beam_search": True}, "use_beam_search", "unsupported_parameter"),
        ({**COMPLETION, "max_tokens": 5, "min_tokens": 6}, "min_tokens", "invalid_value"),
        ({**COMPLETION, "min_tokens": 17}, "min_tokens", "invalid_value"),
        ({"prompt": "x" * 65}, "prompt", "context_length_exceeded"),
        ({"prompt": "ba " * 10_000}, "prompt", "context_length_exceeded"),
        ({"prompt": [1] * 65}, "prompt", "context_length_exceeded"),
        ({"prompt": [[1], [1] * 65]}, "prompt", "context_length_exceeded"),
        ({"messages": [{"role": "user", "content": "x" * 62}]}, "messages", "context_length_exceeded"),
        ({**COMPLETION, "logprobs": 21}, "logprobs", "invalid_value"),
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
        ({**COMPLETION, "stop": [""]}, "stop", "invalid_value"),
        ({**COMPLETION, "stop": "abcdef"}, "stop", "invalid_value"),
        ({**COMPLETION, "logit_bias": {"1": 1, "2": 1, "3": 1}}, "logit_bias", "invalid_value"),
        ({**COMPLETION, "max_tokens": 101}, "max_tokens", "invalid_value"),
        ({**COMPLETION, "stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
        ({**COMPLETION, "speculative": {"draft": "magic"}}, "speculative.draft", "invalid_value"),
        ({**COMPLETION, "speculative": {"draft": "ngram", "k": 17}}, "speculative.k", "invalid_value"),
        ({**COMPLETION, "speculative": {"draft": "ngram", "min_prob": 0.2}}, "speculative.min_prob", "invalid_value"),
        (
            {**COMPLETION, "speculative": {"draft": "ngram", "shape": {"kind": "best_first", "nodes": 4}}},
            "speculative.shape",
            "invalid_value",
        ),
        (
            {**COMPLETION, "speculative": {"draft": "suffix", "shape": {"kind": "best_first", "nodes": 65}}},
            "speculative.shape",
            "invalid_value",
        ),
        ({**CHAT, "tools": [{}]}, "tools", "unsupported_parameter"),
        ({**CHAT, "response_format": {"type": "json_object"}}, "response_format", "unsupported_parameter"),
        ({**CHAT, "top_logprobs": 2}, "top_logprobs", "invalid_value"),
        ({**CHAT, "max_tokens": 1, "max_completion_tokens": 2}, "max_tokens", "invalid_value"),
        ({**CHAT, "tool_choice": "required"}, "tool_choice", "unsupported_parameter"),
        ({**CHAT, "reasoning_effort": "high"}, "reasoning_effort", "unsupported_parameter"),
        ({**CHAT, "chat_template_kwargs": {"enable_thinking": False}}, "chat_template_kwargs", "unsupported_parameter"),
        ({"messages": [{"role": "assistant", "refusal": "No."}]}, "messages[0].refusal", "unsupported_parameter"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_required_parameter"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content", "missing_required_parameter"),
        (
            {"messages": [{"role": "user", "content": "a", "tool_call_id": "x"}]},
            "messages[0].tool_call_id",
            "invalid_value",
        ),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages", "invalid_value"),
        ({"messages": [{"role": "assistant", "tool_calls": [CALL]}]}, "messages", "invalid_value"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]},
            "messages[0].tool_calls[0].function.arguments",
            "invalid_value",
        ),
        ({"messages": []}, "messages", "invalid_value"),
        ({"messages": [{"role": "user", "content": ""}] * 9000}, "messages", "invalid_value"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content[0].type",
            "invalid_value",
        ),
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
        {"echo": False, "best_of": 1, "suffix": None, "stream_options": None, "stop": None},
        {"stop": "", "suffix": "", "logit_bias": {}, "temperature": None, "model": "", "n": 1, "best_of": 1},
        {"use_beam_search": False, "length_penalty": 1.0, "skip_special_tokens": True, "guided_json": None},
        {"repeat_penalty": 1, "cache_prompt": True, "allowed_token_ids": [], "top_k": -1},
        {"tools": None, "response_format": {"type": "text"}, "top_logprobs": 0, "n": None, "store": False},
        {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "functions": [], "max_tokens": 3},
        {"max_tokens": 4, "max_completion_tokens": 4, "stream": True, "stream_options": {"include_obfuscation": False}},
        {"user": "me", "metadata": {"a": "b"}, "safety_identifier": "x", "prompt_cache_key": "k", "store": True},
        {"service_tier": "flex", "verbosity": "low", "request_id": "7", "stream_options": {}},
    ],
)
async def test_asking_for_what_happens_anyway_is_no_refusal(body):
    limits = ServerConfig(strict=True)
    only_chat = {"tools", "top_logprobs", "max_completion_tokens"}
    only_completion = {"suffix", "best_of"}
    for kind in ([COMPLETION] if not only_chat & body.keys() else []) + (
        [CHAT] if not only_completion & body.keys() else []
    ):
        (plain,), (asked,) = (await read(kind, limits)).requests, (await read({**kind, **body}, limits)).requests
        for field in ("prompt", "params", "eos", "choice", "logprobs"):
            assert getattr(asked, field) == getattr(plain, field)


CLIENTS_OWN = {
    "openai": {
        "content": "ba",
        "refusal": None,
        "role": "assistant",
        "annotations": None,
        "audio": None,
        "function_call": None,
        "tool_calls": None,
    },
    "openai-npm": {"role": "assistant", "content": "ba", "refusal": None, "annotations": [], "tool_calls": []},
    "litellm": {
        "content": "ba",
        "role": "assistant",
        "tool_calls": None,
        "function_call": None,
        "provider_specific_fields": {"refusal": None},
    },
    "named": {"role": "assistant", "content": [{"type": "text", "text": "ba"}], "name": "lama"},
    "silent": {"role": "assistant", "content": None},
}


@pytest.mark.parametrize("message", CLIENTS_OWN.values(), ids=CLIENTS_OWN.keys())
async def test_what_clients_keep_of_an_answer_is_a_history(message):
    strict = ServerConfig(strict=True)
    (asked,) = (await read({"messages": [*CHAT["messages"], message]}, strict)).requests
    same = {"role": "assistant", "content": "ba" if message["content"] else ""}
    assert asked.prompt == (await read({"messages": [*CHAT["messages"], same]}, strict)).requests[0].prompt


async def test_unknown_parameters_are_counted_or_refused(caplog):
    body = {
        **CHAT,
        "foo": 1,
        "stream": True,
        "stream_options": {"include_usage": True, "bar": 2},
        "messages": [{"role": "user", "content": [{"type": "text", "text": "ba", "baz": 3}], "qux": 4}] * 2,
    }
    counts = []
    assert len((await read(body, unknown=counts)).requests) == 1
    assert counts == [6]
    assert [record.getMessage().split("'")[1] for record in caplog.records] == [
        "foo",
        "stream_options.bar",
        "messages[].qux",
        "messages[].content[].baz",
    ]
    assert await read({**CHAT, "foo": None}, unknown=counts)  # asks for nothing, whatever it is
    assert counts == [6]
    for asked, param in [
        ({**CHAT, "foo": 1}, "foo"),
        ({**COMPLETION, "stream": True, "stream_options": {"bar": 1}}, "stream_options.bar"),
        ({"messages": [{"role": "user", "content": "ba", "qux": 1}]}, "messages[0].qux"),
    ]:
        told = (await refusal(asked, ServerConfig(strict=True))).body["error"]
        assert (told["param"], told["code"]) == (param, "unsupported_parameter")


async def test_what_is_logged_of_unknown_parameters_is_bounded(caplog):
    counts = []
    body = {**COMPLETION, "y" * 5000: 1, **{f"x{i}": 1 for i in range(80)}}
    reader = reader_of(LIMITS, counts)
    for start in range(2):
        asked = {**body, **{f"y{start}{i}": 1 for i in range(15)}}
        await reader.completion(json.dumps(asked).encode(), None)
    assert counts == [96, 96]
    assert len(caplog.records) == 100
    assert len(caplog.text) < 30_000
    #   more than anybody means are refused
    told = (await refusal({**body, **{f"z{i}": 1 for i in range(30)}})).body["error"]
    assert (told["code"], len(told["param"])) == ("unsupported_parameter", 3)


class Rendering(ToyTokenizer):
    """Puts what it knows of a message into the prompt."""

    def __init__(self, *fields, roles=("tool",)):
        super().__init__()
        self.fields, self.roles = fields, roles

    def chat(self, messages):
        self.seen = messages
        told = [[m.get(field) for field in ("content", *self.fields)] for m in messages if self.knows(m["role"])]
        return self.encode(json.dumps(told))

    def knows(self, role):
        return role in ("user", "assistant", *self.roles)


TOOLS_USED = [
    {"role": "user", "content": "u"},
    {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "r"},
    {"role": "tool", "content": "t", "tool_call_id": "1", "name": "f"},
]


async def test_tool_calls_in_a_history_reach_the_template():
    tokenizer = Rendering("tool_calls")
    data = json.dumps({"messages": TOOLS_USED}).encode()
    job = await reader_of(LIMITS, tokenizer=tokenizer, max_model_len=500).chat(data, None)
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"x": [1]}}}
    messages = [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "", "tool_calls": [call], "reasoning_content": "r"},
        {"role": "tool", "content": "t", "tool_call_id": "1"},
    ]
    assert job.requests[0].prompt == tokenizer.chat(messages)
    #   a template that would pass over them is not asked to
    for silent in (Rendering(), Rendering("tool_calls", roles=())):
        reader = reader_of(LIMITS, tokenizer=silent, max_model_len=500)
        with pytest.raises(ApiError, match="not rendered by this model's chat template"):
            await reader.chat(data, None)


@pytest.mark.parametrize("is_strict", [False, True])
def test_the_document_knows_every_parameter(is_strict):
    schemas = openapi("fake", is_strict=is_strict)["components"]["schemas"]
    for body in {*BODIES, *(kind for nested in NESTED.values() for kind in nested.values())}:
        schema = schemas[body.__name__]
        assert schema["additionalProperties"] is not is_strict
        names = {*body.__struct_fields__, *NEUTRAL.get(body, ()), *TAKEN.get(body, ())}
        assert names == set(schema["properties"])
        #   nothing is both, and nothing is said of what is read
        assert len(names) == len(body.__struct_fields__) + len(NEUTRAL.get(body, ())) + len(TAKEN.get(body, ()))


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


EARLIEST = {"draft": "prompt_lookup", "k": 2, "occurrence": "earliest"}
CHAIN = {"draft": "suffix", "k": 40, "max_depth": 9, "prompts": True}
TREE = {"draft": "suffix", "shape": {"kind": "best_first", "nodes": 12, "min_prob": 0.2}, "rule": "match"}


@pytest.mark.parametrize(
    ("told", "config"),
    [
        ({"draft": "ngram"}, SpecConfig.parse("ngram", 4)),
        ({"draft": "none"}, SpecConfig.parse("none", 4)),
        (EARLIEST, SpecConfig("prompt_lookup", 2, occurrence="earliest")),
        (CHAIN, SpecConfig("suffix", 40, max_depth=9, prompts=True)),
        (TREE, SpecConfig("suffix", shape=BestFirst(12, 0.2), rule="match")),
    ],
)
async def test_a_request_says_how_it_is_drafted_as_the_configuration_does(told, config):
    (request,) = (await read({**COMPLETION, "speculative": told})).requests
    assert request.speculative == config


async def test_the_rule_is_the_configurations_where_a_request_has_none():
    assert (await read(COMPLETION)).requests[0].verify is None


async def test_chat_may_go_on_as_far_as_there_is_room():
    (request,) = (await read(CHAT)).requests
    assert request.max_tokens == 64 - len(request.prompt) + 1
    (request,) = (await read(CHAT, ServerConfig(max_output_tokens=10))).requests
    assert request.max_tokens == 10


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'"\xff"', b"[" * 100_000, b'{"prompt": "\\ud800"}'])
async def test_bodies_that_are_no_json(data):
    reader = reader_of(LIMITS)
    with pytest.raises(ApiError, match="body") as raised:
        await reader.completion(data, None)
    assert raised.value.status == 400
