"""Draw a scenario from a seed: every feature of the engine, small and tight, so that they meet."""

import random
from collections.abc import Sequence

from scheduler import EngineConfig, Request
from sims.explore.draw_drafts import draw_drafts, draw_rule
from sims.explore.scenario import LEAVING_AT, Client, Fault, Leave, Scenario, Strike, Way
from sims.faults import KINDS
from spec import SamplingParams

_MS = 1e-3


def draw(seed: int) -> Scenario:
    """Draw the scenario of a seed."""
    rng = random.Random(f"scenario {seed}")
    block_tokens = rng.choice((1, 2, 3, 4, 4, 8))
    num_blocks = rng.choice((4, 6, 8, 12, 16, 24, 32, 64))
    k = rng.choice((1, 2, 3, 4, 6))
    max_model_len = rng.randint(4, min(48, 2 * num_blocks * block_tokens))
    num_clients = rng.choice((2, 2, 3, 4, 5, 6, 8, 10, 14, 20, 40))
    has_faults = rng.random() < 0.4
    engine = EngineConfig(
        num_blocks=num_blocks,
        block_tokens=block_tokens,
        max_batch_tokens=rng.choice((1 + k, 2 + k, 8 + k, 16 + k, 256)),
        max_running=rng.choice((1, 2, 3, 4, 8, 256)),
        max_model_len=max_model_len,
        max_waiting=rng.choice((None, None, None, None, 2)),
        speculative=draw_drafts(rng, k),
        prefix_cache=rng.random() < 0.75,
        stream_tokens=rng.choice((1 + k, 2 + k, 4 + 2 * k, 256)),
        audit_every=rng.choice((1, 64)),
        pass_timeout_s=50 * _MS if has_faults or rng.random() < 0.3 else None,
        max_restarts=rng.choice((0, 1, 3, 100, 100, 100)),
        restart_period_s=rng.choice((5.0, 50 * _MS)),
    )
    vocab = rng.choice((2, 3, 5, 8, 32))
    shared = [[_token(rng, vocab) for _ in range(max_model_len)] for _ in range(2)]
    clients = [_client(rng, engine, vocab, shared, k) for _ in range(num_clients)]
    closing = rng.choice(("time", "message", *[None] * 8))
    return Scenario(
        engine=engine,
        clients=clients,
        faults=_faults(rng) if has_faults else [],
        bad_rows=rng.sample(range(20), rng.randint(1, 4)) if rng.random() < 0.15 else [],
        order=seed if rng.random() < 0.95 else None,
        haste=rng.choice((0.0, 0.0, 0.5, 0.9)),
        target_seed=rng.randrange(1000),
        vocab=vocab,
        context=rng.choice((1, 1, 2, 3)),
        sharp=rng.choice((1.0, 4.0, 16.0, 100.0)),
        agreement=rng.choice((0.0, 0.5, 0.9, 1.0)),
        bad_proposals=rng.sample(range(60), rng.randint(1, 6)) if rng.random() < 0.1 else [],
        per_row_s=rng.choice((None, None, _MS / 100, _MS, 10 * _MS)),
        late_s=rng.choice((20 * _MS, 51 * _MS, 200 * _MS)),
        close_at_s=rng.uniform(0, 20 * _MS) if closing == "time" else None,
        close_at_message=rng.randint(1, 200) if closing == "message" else None,
        poison=rng.randrange(vocab) if rng.random() < 0.06 else None,
        strikes=[_strike(rng) for _ in range(rng.randint(1, 3))] if rng.random() < 0.06 else [],
    )


def _token(rng: random.Random, vocab: int) -> int:
    return min(rng.randrange(vocab), rng.randrange(vocab))  # uneven, so that drafts are found


def _client(rng: random.Random, engine: EngineConfig, vocab: int, shared: Sequence[Sequence[int]], k: int) -> Client:
    request = _request(rng, engine, vocab, shared, k)
    return Client(
        request=request,
        at_s=rng.choice((0.0, 0.0, rng.uniform(0, 10 * _MS))),
        delay_s=rng.choice((0.0, 0.0, 0.0, rng.uniform(0, 5 * _MS))),
        reads=rng.randint(1, 4) if rng.random() < 0.06 else None,
        leave=_leave(rng, request.max_tokens) if rng.random() < 0.45 else None,
        again=_request(rng, engine, vocab, shared, k) if rng.random() < 0.2 else None,
    )


def _request(rng: random.Random, engine: EngineConfig, vocab: int, shared: Sequence[Sequence[int]], k: int) -> Request:
    limit = engine.max_model_len
    length = rng.choice((1, rng.randint(1, 6), rng.randint(1, limit), rng.randint(max(1, limit - 1), limit + 1)))
    num_shared = rng.choice((0, length - 1, rng.randint(0, length)))
    prompt = [*rng.choice(shared)[:num_shared]]
    prompt += [_token(rng, vocab) for _ in range(length - len(prompt))]
    fits = max(1, min(limit, engine.num_blocks * engine.block_tokens) - length + 1)
    max_tokens = rng.choice((1, 2, rng.randint(1, 8), rng.randint(1, 24), fits, fits + 1))
    speculative = draw_drafts(rng, k) if rng.random() < 0.2 else None
    return Request(
        prompt=prompt,
        params=_params(rng, vocab),
        max_tokens=min(max_tokens, 40),
        seed=rng.randrange(2**32),
        eos=(rng.randrange(vocab),) if rng.random() < 0.3 else (),
        priority=rng.choice((0, 0, 0, 1, -1)),
        cache_salt=rng.choice((None, None, None, "a", "b")),
        speculative=speculative,
        verify=draw_rule(rng, speculative or engine.speculative),
        choice=rng.choice((0, 0, 1)),
        logprobs=rng.random() < 0.8,
    )


def _params(rng: random.Random, vocab: int) -> SamplingParams:
    may_penalise = rng.random() < 0.4
    return SamplingParams(
        temperature=rng.choice((0.0, 0.0, 0.7, 1.0)),
        top_k=rng.choice((0, 0, 2)),
        top_p=rng.choice((1.0, 1.0, 0.8)),
        min_p=rng.choice((0.0, 0.0, 0.1)),
        repetition_penalty=rng.choice((1.0, 1.3)) if may_penalise else 1.0,
        presence_penalty=rng.choice((0.0, 0.5)) if may_penalise else 0.0,
        frequency_penalty=rng.choice((0.0, 2.0, -2.0)) if may_penalise else 0.0,
        logit_bias={rng.randrange(vocab): 2.0} if rng.random() < 0.1 else {},
        min_tokens=rng.choice((0, 0, 0, 3)),
        stop_token_ids=(rng.randrange(vocab),) if rng.random() < 0.1 else (),
    )


def _leave(rng: random.Random, max_tokens: int) -> Leave:
    match rng.randrange(3):
        case 0:
            ways: tuple[Way, ...] = ("cancel", "break", "raise", "task")
            return Leave(way=rng.choice(ways), num_tokens=rng.randint(1, max(1, max_tokens)))
        case 1:
            return Leave(way=rng.choice(("cancel", "task")), delay_s=rng.uniform(0, 20 * _MS))
        case _:
            return Leave(
                way=rng.choice(("cancel", "task")), message=rng.choice(LEAVING_AT), nth=rng.choice((0, 0, 1, 3))
            )


def _faults(rng: random.Random) -> list[Fault]:
    kinds = rng.sample(KINDS, rng.choice((1, 1, 1, 2, 3)))
    reach = {"out_of_blocks": 30, "die_scheduler": 60, "die_blocks": 60, "die_runner": 20}
    return [
        Fault(kind, rng.randrange(rng.choice((3, reach.get(kind, 12)))))
        for kind in kinds
        for _ in range(rng.randint(1, 3))
    ]


def _strike(rng: random.Random) -> Strike:
    return Strike(
        task=rng.choice(("scheduler", "blocks", "runner")),
        at_message=rng.choice((0, rng.randrange(10), rng.randrange(100))),
        delay_s=rng.choice((0.0, 0.0, rng.uniform(0, 2 * _MS))),
    )
