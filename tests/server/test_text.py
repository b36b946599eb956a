"""Text is released only when nothing can take it back, and joined it is the text, wherever tokens are cut."""

from itertools import accumulate, cycle, islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.toy import ToyTokenizer
from server.text import Ruler, TextOfTokens

LETTERS = "abé€𝄞"
TEXTS = st.text(LETTERS, max_size=30)
STOPS = st.lists(st.text(LETTERS, min_size=1, max_size=4), max_size=3)

SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@st.composite
def texts_and_stops(draw):
    """A text, and stop strings of which some are in it and some only begin in it."""
    text = draw(st.text("ab€", min_size=1, max_size=20))
    parts = st.tuples(st.integers(0, len(text) - 1), st.integers(1, 5)).map(lambda part: text[part[0] :][: part[1]])
    return text, draw(st.lists(parts | st.tuples(parts, st.sampled_from("ab€x")).map("".join), min_size=1, max_size=3))


def expected(text, stops):
    """Character by character: the text before the first stop string to be complete, and whether there is one."""
    for end in range(1, len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)], True
    return text, False


def cut(data, sizes):
    """Pieces of the sizes, over and over."""
    starts = list(accumulate(islice(cycle(sizes), len(data)), initial=0))
    return [data[start:end] for start, end in pairwise(starts)]


def run(pieces, stops):
    text = TextOfTokens(stops)
    released = []
    for piece in pieces:
        released.append(text.push(piece))
        if text.is_stopped:
            break
    released.append(text.finish())
    return released, text.is_stopped


@given(texts_and_stops() | st.tuples(TEXTS, STOPS), SIZES)
def test_wherever_tokens_are_cut(text_and_stops, sizes):
    text, stops = text_and_stops
    released, is_stopped = run(cut(text.encode(), sizes), stops)
    assert ("".join(released), is_stopped) == expected(text, stops)


@given(texts_and_stops())
def test_no_more_is_held_than_must_be(text_and_stops):
    text, stops = text_and_stops
    held_back = TextOfTokens(stops)
    released = ""
    for end in range(1, len(text) + 1):
        released += held_back.push(text[end - 1].encode())
        if held_back.is_stopped:
            return
        held = text[len(released) : end]
        assert held == "" or any(stop.startswith(held) for stop in stops)


@given(st.binary(max_size=40), SIZES)
def test_bytes_that_are_no_text(data, sizes):
    released, _ = run(cut(data, sizes), [])
    assert "".join(released) == data.decode("utf-8", "replace")


def test_an_unfinished_character_waits():
    text = TextOfTokens([])
    assert [text.push(bytes((byte,))) for byte in "é€".encode()] == ["", "é", "", "", "€"]
    assert text.push(b"\xe2") == ""
    assert text.finish() == "�"


def test_of_two_that_end_together_the_longer():
    assert run([b"xab"], ["b", "ab"]) == (["x", ""], True)


def test_of_two_in_one_token_the_one_that_is_complete_first():
    assert run([b"xabcd"], ["abcd", "bc"]) == (["xa", ""], True)


def test_nothing_stops_before_it_may():
    text = TextOfTokens(["ab"])
    assert text.push(b"ab a", may_stop=False) == "ab a"
    #   a stop string that began before does not count either
    assert text.push(b"b ") == "b "
    assert text.push(b"ab") == ""
    assert text.is_stopped


@given(st.text(max_size=60) | st.text("bado ", max_size=40))
def test_toy_tokenizer_is_reversible(text):
    tokenizer = ToyTokenizer()
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert all(0 <= token < tokenizer.vocab_size for token in ids)
    assert tokenizer.eos_ids.isdisjoint(ids)


def test_toy_chat_marks_who_speaks():
    tokenizer = ToyTokenizer()
    ids = tokenizer.chat([{"role": "user", "content": "ba"}])
    assert tokenizer.decode(ids) == "ba"
    assert len(ids) == 4
    with pytest.raises(ValueError, match="role is 'judge'"):
        tokenizer.chat([{"role": "judge", "content": "ba"}])


@given(st.text(LETTERS, max_size=20), SIZES)
def test_a_token_begins_where_its_first_character_does(text, sizes):
    ruler, at = Ruler(), 0
    for piece in cut(text.encode(), sizes):
        whole = text.encode()[:at].decode("utf-8", "ignore")
        assert ruler.advance(piece) == len(whole)
        at += len(piece)
