"""What is streamed is the text, whatever the drafts, the stop strings and the bytes."""

import socket

import pytest

from tests.server.harness import events, joined, request_bytes

PROMPT = {"prompt": "ba ni do ba ni do ba ni", "max_tokens": 64, "seed": 11}


def stream(server, body, path="/v1/completions"):
    response = server.post({**body, "stream": True, "stream_options": {"include_usage": True}}, path)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    return events(response)


def drafts(k, draft="prompt_lookup"):
    return {"draft": draft, "k": k} if k else {"draft": "none"}


@pytest.mark.parametrize("k", range(9))
@pytest.mark.parametrize("temperature", [0, 1])
def test_deltas_join_to_the_text_for_every_k(plain, k, temperature):
    body = {**PROMPT, "speculative": drafts(k), "verify": "match", "temperature": temperature}
    whole = plain.post(body).json()
    chunks = stream(plain, body)
    assert joined(chunks) == whole["choices"][0]["text"]
    assert chunks[-1]["usage"] == whole["usage"] | {
        "prompt_tokens_details": chunks[-1]["usage"]["prompt_tokens_details"]
    }
    #   drafts change no text
    plain_text = plain.post({**body, "speculative": drafts(0)}).json()
    assert plain_text["choices"] == whole["choices"]
    assert plain_text["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    if k:
        assert whole["metrics"]["speculative_decoding"]["num_draft_tokens"] > 0


@pytest.mark.parametrize("k", [0, 1, 4, 8])
def test_stop_strings_cut_where_they_are_complete(plain, k):
    body = {**PROMPT, "temperature": 0, "speculative": drafts(k), "return_tokens": True}
    (whole,) = plain.post(body).json()["choices"]
    text, texts = whole["text"], [token["text"] for token in whole["tokens"]]
    #   every string of three to seven characters spans tokens, some span rounds, some end within a round
    for start in range(0, len(text) - 7, 13):
        for length in (3, 7):
            stop = text[start : start + length]
            cut = text.find(stop)
            ends = [len("".join(texts[: i + 1])) for i in range(len(texts))]
            num_tokens = 1 + next(i for i, end in enumerate(ends) if end >= cut + len(stop))
            asked = {**body, "stop": [stop, "never"]}
            answer = plain.post(asked).json()
            assert answer["choices"][0]["text"] == text[:cut]
            assert answer["choices"][0]["finish_reason"] == "stop"
            assert answer["usage"]["completion_tokens"] == num_tokens
            chunks = stream(plain, asked)
            assert joined(chunks) == text[:cut]
            assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
            assert chunks[-1]["usage"]["completion_tokens"] == num_tokens
    plain.wait_idle()


def test_the_text_of_a_round_is_one_event(plain):
    chunks = stream(plain, {**PROMPT, "temperature": 0, "return_tokens": True})
    said = [choice for chunk in chunks for choice in chunk["choices"]]
    for choice in said:
        assert choice["text"] == "".join(token["text"] for token in choice["tokens"])
    assert max(len(choice["tokens"]) for choice in said) > 1
    metrics = chunks[-1]["metrics"]["speculative_decoding"]
    assert len(said) <= 64 - metrics["num_accepted_draft_tokens"] + 1


@pytest.mark.parametrize("usage", [False, True])
def test_the_end_is_one_write(plain, usage):
    """What is left of the text, why it ended and the mark of the end: a client hears of all of it at once."""
    body = {**PROMPT, "max_tokens": 1, "stream": True, "stream_options": {"include_usage": usage}}
    with socket.create_connection(("127.0.0.1", plain.port)) as connection:
        connection.settimeout(10)
        connection.sendall(request_bytes(body))
        data = b""
        while not data.endswith(b"0\r\n\r\n"):
            data += connection.recv(1 << 16)
    _, _, chunked = data.partition(b"\r\n\r\n")
    size, _, rest = chunked.partition(b"\r\n")
    events = rest[: int(size, 16)].split(b"\n\n")
    assert rest[int(size, 16) :] == b"\r\n0\r\n\r\n"
    assert len(events) == 4 + usage
    assert b'"finish_reason":"length"' in events[1]
    assert events[-2:] == [b"data: [DONE]", b""]


def test_a_stop_string_may_not_come_before_min_tokens(plain):
    body = {**PROMPT, "temperature": 0, "return_tokens": True}
    (whole,) = plain.post(body).json()["choices"]
    first = whole["tokens"][0]["text"]
    (choice,) = plain.post({**body, "stop": first, "min_tokens": 20, "max_tokens": 21}).json()["choices"]
    assert len(choice["tokens"]) >= 20


@pytest.mark.parametrize("min_tokens", [1, 4, 5])
def test_the_first_token_that_may_stop_is_the_one_after_min_tokens(plain, min_tokens):
    #   one text over and over: every token would stop
    always = {"prompt": "ba", "logit_bias": {"98": 100}, "temperature": 0, "stop": "b", "max_tokens": 9}
    (free,) = plain.post({**always, "stop": None}).json()["choices"]
    if free["text"] != "b" * 9:
        always["stop"] = list({character for character in free["text"] if character != " "})
    answer = plain.post({**always, "min_tokens": min_tokens, "return_tokens": True}).json()
    (choice,) = answer["choices"]
    assert answer["usage"]["completion_tokens"] == len(choice["tokens"]) == min_tokens + 1
    assert choice["finish_reason"] == "stop"


def test_bytes_wait_for_their_character(plain):
    """At a high temperature the toy model speaks in single bytes, most of which are no text."""
    body = {**PROMPT, "temperature": 1e6, "max_tokens": 200, "return_tokens": True, "ignore_eos": True}
    whole = plain.post(body).json()["choices"][0]
    ids = [token["id"] for token in whole["tokens"]]
    assert whole["text"] == plain.http.post("/detokenize", json={"tokens": ids}).json()["prompt"]
    assert "�" in whole["text"]
    chunks = stream(plain, body)
    assert joined(chunks) == whole["text"]
    streamed = [token["id"] for chunk in chunks for choice in chunk["choices"] for token in choice["tokens"]]
    assert streamed == ids


def test_the_stop_token_is_counted_and_not_shown(plain):
    body = {**PROMPT, "temperature": 0, "return_tokens": True}
    tokens = plain.post(body).json()["choices"][0]["tokens"]
    stop = tokens[5]["id"]
    first = next(i for i, token in enumerate(tokens) if token["id"] == stop)
    answer = plain.post({**body, "stop_token_ids": [stop]}).json()
    assert answer["choices"][0]["text"] == "".join(token["text"] for token in tokens[:first])
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == first + 1


def test_logprobs_are_one_for_each_token(plain):
    for path, body in (
        ("/v1/completions", {**PROMPT, "logprobs": 0}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "ba"}], "max_tokens": 50, "logprobs": True}),
    ):
        asked = {**body, "seed": 5, "stop": " lu"}
        whole = plain.post(asked, path).json()
        told = whole["choices"][0]["logprobs"]
        chunks = [choice["logprobs"] for chunk in stream(plain, asked, path) for choice in chunk["choices"]]
        for field in ("content",) if "content" in told else ("tokens", "token_logprobs", "text_offset"):
            assert len(told[field]) == whole["usage"]["completion_tokens"]
            parts = [chunk[field] for chunk in chunks if chunk]
            assert [entry for part in parts for entry in part] == told[field]


def test_offsets_count_characters_whatever_tokens_they_are_cut_into(plain):
    body = {**PROMPT, "temperature": 1e6, "max_tokens": 300, "ignore_eos": True, "logprobs": 0, "return_tokens": True}
    (choice,) = plain.post(body).json()["choices"]
    offsets, tokens = choice["logprobs"]["text_offset"], [token["id"] for token in choice["tokens"]]
    assert offsets == sorted(offsets)
    for end in range(0, 300, 50):
        before = plain.http.post("/detokenize", json={"tokens": tokens[:end]}).json()["prompt"]
        assert len(before.rstrip("\ufffd")) <= offsets[end] <= len(before)
    assert offsets[-1] < len(choice["text"])
    streamed = [chunk["choices"][0]["logprobs"] for chunk in stream(plain, body)[:-1]]
    assert [offset for told in streamed for offset in told["text_offset"]] == offsets


def test_usage_with_every_chunk_for_who_asks(plain):
    body = {"prompt": ["ba ni", "do"], "n": 2, "max_tokens": 12, "ignore_eos": True, "stream": True}
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = events(plain.post({**body, "stream_options": options}))
    lengths = [len(plain.http.post("/tokenize", json={"prompt": text}).json()["tokens"]) for text in body["prompt"]]
    last = {}
    for chunk in chunks[:-1]:
        (choice,) = chunk["choices"]
        usage = chunk["usage"]
        assert usage["prompt_tokens"] == lengths[choice["index"] // 2]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert usage["completion_tokens"] >= last.get(choice["index"], 0)
        last[choice["index"]] = usage["completion_tokens"]
    assert last == dict.fromkeys(range(4), 12)
    assert chunks[-1]["usage"]["completion_tokens"] == 48
    #   without include_usage it asks for nothing, as elsewhere
    assert all(
        "usage" not in chunk
        for chunk in events(plain.post({**body, "stream_options": {**options, "include_usage": False}}))
    )
    chat = {"messages": [{"role": "user", "content": "ba"}], "max_tokens": 3, "stream": True, "stream_options": options}
    first, *_ = events(plain.post(chat, "/v1/chat/completions"))
    assert first["usage"]["completion_tokens"] == 0


def test_accepted_drafts_are_marked(plain):
    answer = plain.post({**PROMPT, "temperature": 0, "return_tokens": True}).json()
    accepted = sum(token["accepted"] for token in answer["choices"][0]["tokens"])
    assert accepted == answer["metrics"]["speculative_decoding"]["num_accepted_draft_tokens"] > 0


@pytest.mark.parametrize("k", [4, 8])
def test_what_speculation_did_is_told_of_the_text_that_was_given(plain, k):
    body = {"temperature": 0, "speculative": drafts(k), "return_tokens": True, "ignore_eos": True, "max_tokens": 30}
    (told,) = plain.post({**body, **PROMPT}).json()["choices"]
    said = [token["id"] for token in told["tokens"]]
    body["prompt"] = said[:30] + said[:3]  # what is said now has been said
    (whole,) = plain.post(body).json()["choices"]
    texts = [token["text"] for token in whole["tokens"]]
    within_rounds = [i for i in range(len(texts) - 1) if all(t["accepted"] for t in whole["tokens"][i : i + 2])]
    assert within_rounds[0] < 4
    for at in range(4):
        asked = {**body, "stop": texts[at]}
        answer = plain.post(asked).json()
        (choice,) = answer["choices"]
        for told in (answer["metrics"], stream(plain, asked)[-1]["metrics"]):
            counted = told["speculative_decoding"]
            accepted = sum(token["accepted"] for token in choice["tokens"])
            assert counted["num_accepted_draft_tokens"] == accepted
            assert counted["num_accepted_draft_tokens"] <= answer["usage"]["completion_tokens"]
            assert counted["num_accepted_draft_tokens"] <= counted["num_draft_tokens"]
            histogram = counted["acceptance_histogram"]
            assert sum(i * count for i, count in enumerate(histogram)) == accepted
            assert sum(histogram) == counted["num_spec_steps"]


def test_tokenize_and_back(plain):
    told = plain.http.post("/tokenize", json={"prompt": "bä du"}).json()
    assert told["count"] == len(told["tokens"])
    assert plain.http.post("/detokenize", json={"tokens": told["tokens"]}).json() == {"prompt": "bä du"}
    assert plain.http.post("/detokenize", json={"tokens": [430]}).status_code == 400
    body = {"max_tokens": 5, "temperature": 0}
    by_text = plain.post({**body, "prompt": "bä du"}).json()["choices"]
    assert plain.post({**body, "prompt": told["tokens"]}).json()["choices"] == by_text
    both = plain.post({**body, "prompt": ["bä du", told["tokens"]]}).json()["choices"]
    assert [choice["text"] for choice in both] == [by_text[0]["text"]] * 2
