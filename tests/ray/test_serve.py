import asyncio
import os
import random
import signal
from collections import Counter

import pytest

pytest.importorskip("ray", reason="Ray is not installed: make test-ray")

from tests.ray.harness import fleet, stream, wait_until

NUM_CLIENTS, NUM_REPLICAS = 200, 3


@pytest.fixture(scope="module")
def served():
    """Three replicas whose passes take 20 ms."""
    with fleet(
        *("--ray", "--replicas", str(NUM_REPLICAS), "--speculative", "none"),
        *("--set", "model.min_pass_s=0.02", "--set", "engine.max_running=32"),
    ) as running:
        yield running


def test_prompts_with_one_beginning_meet_in_one_replica(served):
    at = {}
    for family in range(6):
        beginning = f"family {family} " + "ba ni do " * 100
        for number in range(3):
            answer = served.http.post("/v1/completions", json={"prompt": f"{beginning}{number}", "max_tokens": 2})
            at.setdefault(family, []).append(answer.headers["x-replica"])
            cached = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
            assert (cached > 0) == (number > 0)
    assert all(len(set(replicas)) == 1 for replicas in at.values())
    assert Counter(replicas[0] for replicas in at.values()) == dict.fromkeys(served.metrics(), 2)


def test_what_is_refused_is_refused_as_by_one_server(served):
    assert served.http.get("/nowhere").status_code == 404
    assert served.http.get("/health").json() == {"status": "ok"}
    assert (
        served.http.post("/v1/completions", json={"prompt": "a", "temperature": -1}).json()["error"]["param"]
        == "temperature"
    )
    large = served.http.post("/v1/completions", json={"prompt": "a" * (1 << 20)})
    assert large.status_code == 413
    assert served.http.get("/health", headers={"host": "elsewhere.example"}).status_code == 403


def test_a_client_that_leaves_is_soon_out_of_its_replica(served):
    wait_until(lambda: served.is_idle(NUM_REPLICAS))
    before = sum(one["vllm:generation_tokens_total"] for one in served.metrics().values())
    ended = asyncio.run(stream(served.port, {"prompt": "ba ni", "max_tokens": 2000, "ignore_eos": True}, 10))
    wait_until(lambda: served.is_idle(NUM_REPLICAS), 10)
    seen = served.metrics()
    num_made = sum(one["vllm:generation_tokens_total"] for one in seen.values()) - before
    print(f"{num_made - ended.num_pieces:.0f} tokens were made for nobody")
    assert num_made < 200


def test_many_clients_some_of_whom_leave_and_a_replica_that_is_killed(served):
    chance = random.Random(7)
    leaving = set(chance.sample(range(NUM_CLIENTS), NUM_CLIENTS * 3 // 10))
    num_pieces, before = 0, set(served.metrics())
    victim, *_ = served.replica_pids()

    def count(replica, _):
        nonlocal num_pieces
        num_pieces += 1
        if num_pieces == 8 * NUM_CLIENTS:
            os.kill(victim, signal.SIGKILL)

    async def all_of_them():
        return await asyncio.gather(
            *(
                stream(
                    served.port,
                    {"prompt": f"{number} ba ni do", "max_tokens": 80, "seed": number, "ignore_eos": True},
                    chance.randint(-1, 40) if number in leaving else None,
                    is_rude=number % 2 == 1,
                    at_piece=count,
                )
                for number in range(NUM_CLIENTS)
            )
        )

    ended = asyncio.run(asyncio.wait_for(all_of_them(), 60))
    wait_until(lambda: served.is_idle(NUM_REPLICAS))
    seen = served.metrics()
    (dead,) = before - set(seen)
    print(Counter((one.how, one.code, one.replica == dead) for one in ended))
    assert {one.how for one in ended} == {"done", "left", "error"}
    for one in ended:
        if one.how == "error":
            assert (one.replica, one.code) == (dead, "replica_died")
        elif one.how == "done":
            assert one.num_pieces >= 80
    for one in seen.values():
        assert one["tl_engine_blocks free"] + one["tl_engine_blocks evictable"] == 4096
        assert one["tl_engine_conservation_violations_total"] == 0
