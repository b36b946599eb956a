"""Messages are values: they survive serialisation, and no actor passes over one it does not know."""

from typing import Union

import msgspec
import pytest

from actors import messages
from actors.blocks import BlockManager
from actors.messages import (
    Admit,
    Admitted,
    Cancel,
    DraftAsk,
    Feed,
    ForgetAll,
    Message,
    Outcome,
    Propose,
    Proposed,
    ProposedTree,
    Reserve,
    Reserved,
    Resume,
    RoundSpec,
    Settle,
    Settled,
    Step,
    StepDone,
    Stop,
    Submit,
)
from actors.runner import ModelRunner
from kvpool import Candidate, Victim
from spec import Expansion, SamplingParams
from tests.actors.harness import config, engine, fake, inline, lookup, read, request, run

LARGEST = 2**64 - 1
PARAMS = SamplingParams(temperature=0.5, logit_bias={3: -1.5}, stop_token_ids=(1, 2), min_tokens=2)
ROUND = RoundSpec([4, 5], [-1, -1], "top", PARAMS, [1, 2], [3], LARGEST, LARGEST, "match", True)
ASK = DraftAsk(1, [3], 2, [0, 1], Expansion((2, 1)), "iid", 4, PARAMS, [1, 2], [3], True, LARGEST, LARGEST)
EVERY_KIND = [
    Submit(3, request(params=PARAMS, seed=LARGEST, eos=(2,), id="a", cache_salt="s", speculative=lookup(3))),
    Cancel(1),
    Resume(2),
    Stop(),
    Admit([Candidate(1, [1, 2], None, 2, 1), Candidate(2, [3], ("salt", "proposer"), 1, 0)], [Victim(5, 3)], 1, 4),
    Admitted([4, None], [5], 7),
    Reserve([(1, 5), (2, 1)]),
    Reserved([[0, 3], [1]], 2),
    Settle([(1, [5, 6], None), (2, [], 4)], [2]),
    Settled(1, 2, 3),
    ForgetAll(),
    Propose(9, [ASK]),
    Proposed(9, [ProposedTree(1, [4, 5], [-1, -1], [0.5, 0.25], LARGEST)]),
    Proposed(9, [], "it failed"),
    Step(9, [Feed(1, [3, 4, 5], 2, [0, 1], ROUND), Feed(2, [1], 0, [4], None)], [ASK]),
    StepDone(9, [Outcome(1, [4, 6], [-0.5, -1.25], LARGEST), Outcome(2, [], None, 0, "row 0")], "it failed"),
    StepDone(9, [Outcome(1, [4, 6], None, LARGEST)], None, [ProposedTree(1, [4, 5], [-1, 0], None, LARGEST)]),
]


def kinds():
    return Message.__subclasses__()


def test_every_message_comes_back_from_serialisation_as_it_was():
    assert {type(message) for message in EVERY_KIND} == set(kinds())
    decoder = msgspec.msgpack.Decoder(Union[tuple(kinds())])  # noqa: UP007  # the tuple is not known before
    for message in EVERY_KIND:
        data = messages.encode(message)
        assert decoder.decode(data) == message
        assert messages.encode(decoder.decode(data)) == data


def test_what_an_engine_sends_comes_back_too():
    async def main():
        async with engine() as running:
            await read(running.submit(request(params=PARAMS)))
            return running._scheduler._tap.messages

    sent = run(main())
    assert len({type(message) for _, _, message in sent}) >= 9
    decoder = msgspec.msgpack.Decoder(Union[tuple(kinds())])  # noqa: UP007
    for _, _, message in sent:
        data = messages.encode(message)
        assert messages.encode(decoder.decode(data)) == data


def test_messages_are_frozen():
    for message in EVERY_KIND:
        for field in message.__struct_fields__:
            with pytest.raises(AttributeError):
                setattr(message, field, None)


@pytest.mark.parametrize("unknown", [message for message in EVERY_KIND if not isinstance(message, (Propose, Step))])
def test_the_runner_refuses_what_it_does_not_know(unknown):
    with pytest.raises(TypeError, match=f"runner does not know {type(unknown).__name__}"):
        run(ModelRunner(fake(), None, config(), None, inline).handle(unknown))


@pytest.mark.parametrize(
    "unknown", [message for message in EVERY_KIND if not isinstance(message, (Admit, Reserve, Settle, ForgetAll))]
)
def test_the_block_manager_refuses_what_it_does_not_know(unknown):
    with pytest.raises(TypeError, match=f"blocks does not know {type(unknown).__name__}"):
        run(BlockManager(config(), None).handle(unknown))


def test_a_message_the_scheduler_does_not_know_is_an_error_and_not_passed_over():
    async def main():
        async with engine(tap=None) as running:
            stream = running.submit(request())
            running._send(Settle([], []))
            seen = await read(stream)
            assert (seen.tokens, seen.reason) == ([], "error")
            return running.stats().counters.num_failed

    assert run(main()) == 1


def test_the_messages_of_a_step_do_not_grow_with_the_batch():
    def num_per_step(num_requests):
        async def main():
            async with engine(num_blocks=1000, max_batch_tokens=1000, max_running=100) as running:
                streams = [running.submit(request(seed=i)) for i in range(num_requests)]
                for stream in streams:
                    await read(stream)
                log = running._scheduler._tap
                return (log.num - len(log.of(Submit)) - len(log.of(Cancel))) / running.stats().counters.num_steps

        return run(main())

    assert num_per_step(50) <= num_per_step(1) <= 10
