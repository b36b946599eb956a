"""The official client works against the server, streaming and not."""

import openai
import pytest

from tests.server.harness import joined, serving

PROMPT = "Tell me of lama and budo."
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": PROMPT}]


@pytest.fixture(scope="module")
def client(plain):
    with openai.OpenAI(base_url=f"{plain.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_models(client):
    assert [model.id for model in client.models.list()] == ["fake"]
    assert client.models.retrieve("fake").id == "fake"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("fake/other")


def test_completion(client):
    answer = client.completions.create(model="fake", prompt=PROMPT, max_tokens=40, seed=1, n=2, logprobs=0)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.choices[0].text != answer.choices[1].text
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    for choice in answer.choices:
        said = choice.logprobs
        assert "".join(said.tokens) == choice.text
        assert all(logprob <= 0 for logprob in said.token_logprobs)
        ends = [offset + len(token) for offset, token in zip(said.text_offset, said.tokens, strict=True)]
        assert ends == [*said.text_offset[1:], len(choice.text)]
    again = client.completions.create(model="fake", prompt=PROMPT, max_tokens=40, seed=1, n=2)
    assert [choice.text for choice in again.choices] == [choice.text for choice in answer.choices]


def test_streamed_completion(client):
    asked = {"model": "fake", "prompt": PROMPT, "max_tokens": 60, "seed": 2}
    whole = client.completions.create(**asked)
    chunks = list(client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == whole.choices[0].text
    assert {(chunk.id, chunk.created, chunk.object) for chunk in chunks} == {
        (chunks[0].id, chunks[0].created, "text_completion")
    }
    #   the reason comes once, with the last chunk of the choice; the usage after it
    reasons = [choice.finish_reason for chunk in chunks for choice in chunk.choices]
    assert reasons == [None] * (len(reasons) - 1) + [whole.choices[0].finish_reason]
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-1].choices == []


def test_chat(client):
    answer = client.chat.completions.create(
        model="fake", messages=MESSAGES, max_completion_tokens=30, seed=3, logprobs=True
    )
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert "".join(entry.token for entry in choice.logprobs.content) == choice.message.content
    assert choice.finish_reason in ("stop", "length")
    #   what was answered can be said again as it is
    for message in (choice.message, choice.message.model_dump(), choice.message.to_dict()):
        follow_up = [*MESSAGES, message, {"role": "user", "content": "Go on."}]
        assert client.chat.completions.create(model="fake", messages=follow_up, max_tokens=3).choices


def test_streamed_chat(client):
    asked = {"model": "fake", "messages": MESSAGES, "max_tokens": 30, "seed": 4, "n": 2}
    whole = client.chat.completions.create(**asked)
    chunks = [chunk.model_dump() for chunk in client.chat.completions.create(**asked, stream=True)]
    for choice in whole.choices:
        own = [c for chunk in chunks for c in chunk["choices"] if c["index"] == choice.index]
        assert joined(({"choices": [c]} for c in own if c["delta"]["content"]), choice.index) == choice.message.content
        assert [c["delta"]["role"] for c in own] == ["assistant"] + [None] * (len(own) - 1)
        assert own[-1]["finish_reason"] == choice.finish_reason


async def test_async_client_that_stops_reading(plain):
    async with openai.AsyncOpenAI(base_url=f"{plain.url}/v1", api_key="none", max_retries=0) as client:
        stream = await client.completions.create(
            model="fake", prompt="ba", max_tokens=4000, extra_body={"ignore_eos": True}, stream=True
        )
        async for _ in stream:
            break
        await stream.close()
    plain.wait_idle()


def test_a_prompt_counts_once_however_many_choices_it_has(plain):
    prompts = [f"prompt number {i}, longer than a block or two of it" for i in range(2)]
    body = {"prompt": prompts, "max_tokens": 3}
    plain.post(body)
    usage = plain.post({**body, "n": 3}).json()["usage"]
    one = plain.post(body).json()["usage"]
    assert usage["prompt_tokens"] == one["prompt_tokens"]
    cached = one["prompt_tokens_details"]["cached_tokens"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == cached > 0


def test_cached_tokens_and_acceptance(client):
    asked = {"model": "fake", "prompt": "a prompt of more than one block, asked twice", "max_tokens": 200, "seed": 5}
    first, second = (client.completions.create(**asked, temperature=0, n=1) for _ in range(2))
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    assert second.usage.prompt_tokens_details.cached_tokens == second.usage.prompt_tokens // 16 * 16 > 0
    told = second.metrics["speculative_decoding"]
    assert 0 < told["num_accepted_draft_tokens"] <= told["num_draft_tokens"]
    assert told["draft_acceptance_rate"] == told["num_accepted_draft_tokens"] / told["num_draft_tokens"]
    histogram = told["acceptance_histogram"]
    assert sum(histogram) == told["num_spec_steps"]
    assert sum(i * count for i, count in enumerate(histogram)) == told["num_accepted_draft_tokens"]
    assert len(histogram) == told["num_spec_tokens"] + 1 == 5


@pytest.mark.parametrize(
    ("change", "error", "param"),
    [
        ({"model": "gpt-5"}, openai.NotFoundError, "model"),
        ({"temperature": -1}, openai.BadRequestError, "temperature"),
        ({"prompt": [430]}, openai.BadRequestError, "prompt"),
        ({"max_tokens": 100_000}, openai.BadRequestError, "max_tokens"),
        ({"extra_body": {"top_k": -2}}, openai.BadRequestError, "top_k"),
        ({"extra_body": {"stop_token_ids": [430]}}, openai.BadRequestError, "stop_token_ids"),
        ({"logit_bias": {"430": 1}}, openai.BadRequestError, "logit_bias"),
        ({"suffix": "me"}, openai.BadRequestError, "suffix"),
    ],
)
def test_errors_arrive_as_they_are_meant(client, change, error, param):
    with pytest.raises(error) as raised:
        client.completions.create(**{"model": "fake", "prompt": "ba", **change})
    assert raised.value.param == param


def test_keys():
    with serving("--api-key", "one", "--api-key", "two", "--set", "engine.num_blocks=64") as server:
        for wrong in ("Bearer three", "Bearer on", "Bearer onee", "Basic one", "one"):
            assert server.http.get("/v1/models", headers={"authorization": wrong}).status_code == 401
        stranger = openai.OpenAI(base_url=f"{server.url}/v1", api_key="three", max_retries=0)
        with stranger, pytest.raises(openai.AuthenticationError):
            stranger.models.list()
        cached = []
        for key in ("one", "two", "one"):
            with openai.OpenAI(base_url=f"{server.url}/v1", api_key=key) as client:
                answer = client.completions.create(model="fake", prompt="p" * 40, max_tokens=2)
                cached.append(answer.usage.prompt_tokens_details.cached_tokens)
        #   what one key has sent is never found in the cache by another
        assert cached == [0, 0, 32]
        assert server.http.get("/live").status_code == 401
        assert server.http.post("/tokenize", json={"prompt": "a"}).status_code == 401
        assert server.http.get("/health").status_code == server.http.get("/metrics").status_code == 200
        assert not any(secret in server.log for secret in ("one", "two", "pppp"))
