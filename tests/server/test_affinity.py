import json

from server.replicas.affinity import Affinity, prefix_keys

IDLE = {"a": 0, "b": 0, "c": 0}


def keys_of(prompt, salt=b"", **body):
    return prefix_keys(json.dumps({"prompt": prompt, **body}).encode(), salt)


def test_prompts_share_the_names_of_what_they_share():
    one, other = keys_of("x" * 1000), keys_of("x" * 600 + "y" * 1000, max_tokens=3)
    assert (len(one), len(other)) == (3, 6)
    assert one[:2] == other[:2]
    assert not set(one[2:]) & set(other)


def test_what_is_cached_apart_is_routed_apart():
    assert not set(keys_of("x" * 1000, b"mine")) & set(keys_of("x" * 1000, b"yours"))


def test_chats_and_ids_have_names_too_and_what_is_no_json_has_none():
    assert len(prefix_keys(json.dumps({"messages": [{"role": "user", "content": "x" * 600}]}).encode(), b"")) == 2
    assert len(keys_of(list(range(100)))) == 1
    assert keys_of("short") == []
    for body in (b"", b"{", b'"text"', b"\xff", b"[" * 100_000):
        assert prefix_keys(body, b"") == []


def test_the_longest_beginning_decides():
    affinity, keys = Affinity(), keys_of("x" * 2000)
    affinity.note(keys, "c")
    affinity.note(keys[:2], "b")
    assert affinity.rank(keys, IDLE)[0] == "c"
    assert affinity.rank(keys[:2], IDLE)[0] == "b"


def test_a_replica_that_is_gone_or_much_busier_is_passed_over():
    affinity, keys = Affinity(), keys_of("x" * 2000)
    affinity.note(keys, "c")
    assert affinity.rank(keys, {"a": 1, "b": 0}) == ["b", "a"]
    assert affinity.rank(keys, {"a": 0, "b": 1, "c": 8}) == ["c", "a", "b"]
    assert affinity.rank(keys, {"a": 0, "b": 1, "c": 9}) == ["a", "b", "c"]


def test_prompts_that_nobody_has_read_are_spread():
    affinity, got = Affinity(), []
    for number in range(6):
        keys = keys_of(f"{number}" * 300)
        got.append(affinity.rank(keys, IDLE)[0])
        affinity.note(keys, got[-1])
    assert sorted(got) == ["a", "a", "b", "b", "c", "c"]


def test_the_oldest_beginnings_are_forgotten(monkeypatch):
    monkeypatch.setattr("server.replicas.affinity._MAX_KEYS", 2)
    affinity = Affinity()
    for replica, keys in zip("abc", map(keys_of, ("x" * 300, "y" * 300, "z" * 300)), strict=True):
        affinity.note(keys, replica)
    assert affinity.rank(keys_of("z" * 300), IDLE)[0] == "c"
    assert len(affinity._replica_of) == 2
