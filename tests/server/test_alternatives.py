"""Log-probabilities of prompts, and of what might have been said instead."""

import numpy as np
import pytest

from models import Chunk
from models.toy import ToyModel, ToyTokenizer
from server.scoring import Scorer
from tests.server.harness import events

IDS = ToyTokenizer().encode("Tell me of lama and budo, and tell me more of it.") * 12  # more than a pass reads
BODY = {"prompt": IDS[:20], "max_tokens": 12, "seed": 3, "return_tokens": True}


def laws_of(ids):
    model = ToyModel(0, 1, 800.0)
    model.bind(64, 16)
    rows = model.forward([Chunk(ids, 0, range(-(-len(ids) // 16)), len(ids))]).astype(np.float64)
    return rows - np.log(np.exp(rows - rows.max(1, keepdims=True)).sum(1, keepdims=True)) - rows.max(1, keepdims=True)


@pytest.mark.parametrize("sizes", [[len(IDS)], [1] * 20, [3, 1, 300], [256, 1, 1]])
async def test_each_token_is_scored_by_what_came_before_it(sizes):
    laws, found, at = laws_of(IDS), [], 0
    async with Scorer(ToyModel(0, 1, 800.0), 16).open(len(IDS), 3) as reading:
        for size in sizes:
            found += await reading.score(IDS[at : at + size])
            at += size
    assert found[0] == (None, [])
    for i, scored in enumerate(found[1:], 1):
        law = laws[i - 1]
        assert scored.logprob == pytest.approx(law[IDS[i]], abs=1e-5)
        best = sorted(range(len(law)), key=lambda token, law=law: (-law[token], token))[:3]
        assert [token for token, _ in scored.top] == best
        assert [logprob for _, logprob in scored.top] == pytest.approx(law[best], abs=1e-5)


def test_a_prompt_is_echoed_with_its_log_probabilities(plain):
    plain_answer = plain.post({**BODY, "logprobs": 0}).json()["choices"][0]
    asked = {**BODY, "echo": True, "logprobs": 2}
    answer = plain.post(asked).json()
    (choice,) = answer["choices"]
    prompt = plain.http.post("/detokenize", json={"tokens": IDS[:20]}).json()["prompt"]
    assert choice["text"] == prompt + plain_answer["text"]
    assert choice["tokens"] == plain_answer["tokens"]
    assert answer["usage"]["completion_tokens"] == len(plain_answer["tokens"])
    said = choice["logprobs"]
    assert "".join(said["tokens"]) == choice["text"]
    assert said["token_logprobs"][20:] == plain_answer["logprobs"]["token_logprobs"]
    assert said["token_logprobs"][0] is said["top_logprobs"][0] is None
    laws = laws_of(IDS[:20])
    assert said["token_logprobs"][1:20] == pytest.approx([laws[i][IDS[i + 1]] for i in range(19)], abs=1e-5)
    for text, logprob, top in list(zip(said["tokens"], said["token_logprobs"], said["top_logprobs"], strict=True))[1:]:
        assert top[text] >= logprob
        assert 2 <= len(top) <= 3
        assert logprob <= max(top.values()) <= 1e-9
    ends = [offset + len(token) for offset, token in zip(said["text_offset"], said["tokens"], strict=True)]
    assert ends == [*said["text_offset"][1:], len(choice["text"])]
    #   streamed it is the same
    chunks = [chunk["choices"][0] for chunk in events(plain.post({**asked, "stream": True}))]
    assert "".join(chunk["text"] for chunk in chunks) == choice["text"]
    for field, values in said.items():
        assert [value for chunk in chunks for value in chunk["logprobs"][field]] == values
    plain.wait_idle()


def test_a_prompt_is_echoed_as_it_is(plain):
    for prompt in ("bä du", ["bä du", IDS[:3]]):
        answer = plain.post({"prompt": prompt, "max_tokens": 2, "echo": True, "n": 2}).json()
        texts = [choice["text"] for choice in answer["choices"]]
        assert all(text.startswith("bä du") for text in texts[:2])
        assert all(choice["logprobs"] is None for choice in answer["choices"])


def test_likeliest_tokens_of_a_chat(plain):
    body = {"messages": [{"role": "user", "content": "ba"}], "max_tokens": 10, "temperature": 0, "logprobs": True}
    (choice,) = plain.post({**body, "top_logprobs": 4}, "/v1/chat/completions").json()["choices"]
    content = choice["logprobs"]["content"]
    assert len(content) == 10
    for entry in content:
        top = entry["top_logprobs"]
        assert len(top) == 4
        assert top == sorted(top, key=lambda told: -told["logprob"])
        #   greedy is the likeliest
        assert (top[0]["token"], top[0]["logprob"]) == (entry["token"], entry["logprob"])
        assert bytes(top[0]["bytes"]).decode() == top[0]["token"]
    (bare,) = plain.post(body, "/v1/chat/completions").json()["choices"]
    assert [{**entry, "top_logprobs": []} for entry in content] == bare["logprobs"]["content"]
    chunks = events(plain.post({**body, "top_logprobs": 4, "stream": True}, "/v1/chat/completions"))
    streamed = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    assert [entry for told in streamed if told for entry in told["content"]] == content
