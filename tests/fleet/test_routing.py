import pytest
from hypothesis import given
from hypothesis import strategies as st

from sims.conversations import Conversations
from sims.errors import SimError
from sims.fleet.config import POLICIES, Fleet, Outage
from sims.fleet.delivery import Delivery, Diverged
from sims.fleet.routing import Ask, Router, chain

ALL = (0, 1, 2)


def router(policy, capacity=100):
    return Router(policy, 3, 4, capacity)


def ask(num_prompt=8, keys=(), session=None):
    return Ask(num_prompt, keys, session)


def send(router, ask, able=ALL, time_s=0.0):
    replica = router.choose(ask, able)
    router.sent(replica, ask, time_s)
    return replica


def test_round_robin_takes_turns_and_passes_over_who_is_away():
    robin = router("round-robin")
    assert [send(robin, ask()) for _ in range(4)] == [0, 1, 2, 0]
    assert [send(robin, ask(), (0, 2)) for _ in range(3)] == [2, 0, 2]


@pytest.mark.parametrize("policy", POLICIES)
def test_where_nobody_is_nobody_is_chosen(policy):
    assert router(policy).choose(ask(), ()) is None
    assert router(policy).choose(ask(), (1,)) == 1


def test_least_tokens_counts_what_it_sent_since_it_was_told():
    least = router("least-tokens")
    assert send(least, ask(100)) == 0
    assert send(least, ask(10)) == 1
    assert send(least, ask(10)) == 2
    assert send(least, ask(10)) == 1
    least.told(0, 5, time_s=0.0)  # of a moment at which the prompt of 100 was there
    assert least.load(0) == 5
    send(least, ask(30), (0,), time_s=2.0)
    least.told(0, 7, time_s=1.0)
    assert least.load(0) == 37


def test_prefix_goes_where_the_prompt_has_been_unless_the_queue_costs_more():
    prefix = router("prefix")
    prompt, other = chain(range(40), 4, None), chain(range(100, 140), 4, None)
    assert send(prefix, ask(41, prompt)) == 0
    assert send(prefix, ask(41, other)) == 1
    for replica in ALL:
        prefix.told(replica, 0, 0.0)
    assert prefix.cached(0, ask(41, prompt)) == 40
    assert prefix.cached(0, ask(40, prompt)) == 39  # the last token is always computed
    assert prefix.choose(ask(41, prompt), ALL) == 0
    prefix.told(0, 41, 0.0)
    assert prefix.choose(ask(41, prompt), ALL) != 0
    prefix.told(0, 0, 0.0)
    prefix.forget(0)
    assert prefix.cached(0, ask(41, prompt)) == 0


def test_prefixes_are_forgotten_from_their_ends_as_others_come():
    prefix = router("prefix", capacity=12)
    old, new = chain(range(40), 4, None), chain(range(100, 116), 4, None)
    prefix.sent(0, ask(41, old), 0.0)
    prefix.sent(0, ask(17, new), 0.0)
    assert prefix.cached(0, ask(17, new)) == 16
    assert prefix.cached(0, ask(41, old)) == 4 * 8


def test_chains_share_what_prompts_share_and_salts_share_nothing():
    one, two = chain([1, 2, 3, 4, 5, 6, 7, 8], 4, None), chain([1, 2, 3, 4, 5, 6, 7, 9, 9], 4, None)
    assert one[0] == two[0]
    assert one[1] != two[1]
    assert not set(one) & set(chain([1, 2, 3, 4, 5, 6, 7, 8], 4, "tenant-1"))


def test_a_session_stays_where_it_is_while_that_is_there():
    session = router("session")
    assert send(session, ask(50, session="a")) == 0
    assert send(session, ask(50, session="b")) == 1
    assert send(session, ask(50, session="a")) == 0
    assert send(session, ask(50, session="a"), (1, 2)) == 2
    assert send(session, ask(50, session="a")) == 2


def test_a_prompt_carries_on_the_longest_one_that_it_begins_with_and_each_once():
    conversations = Conversations()
    first, other = conversations.of([0, 1, 2]), conversations.of([0, 5])
    assert first != other
    assert conversations.of([0, 1, 2, 3]) == first
    assert conversations.of([0, 1, 2, 4]) not in (first, other)
    assert conversations.of([0, 1, 2, 3, 9]) == first
    assert len({conversations.of([]) for _ in range(3)}) == 3


@given(st.lists(st.integers(0, 9), max_size=20), st.lists(st.integers(0, 20), max_size=6))
def test_whatever_attempts_there_are_every_token_is_passed_on_once_and_in_order(text, ends):
    delivery, passed = Delivery(), []
    for end in [*ends, len(text)]:
        passed += [token for index, token in enumerate(text[:end]) if delivery.take(index, token)]
    assert passed == text
    assert delivery.num_delivered == len(text)


def test_an_attempt_that_says_something_else_or_leaves_a_gap_is_found():
    delivery = Delivery()
    assert delivery.take(0, 5)
    with pytest.raises(Diverged, match="5 was delivered"):
        delivery.take(0, 6)
    with pytest.raises(Diverged, match="after 1 tokens"):
        delivery.take(2, 6)


@pytest.mark.parametrize("text", ["2@30+10", "0@0.5+0"])
def test_outages_are_read_as_they_are_said(text):
    assert str(Outage.parse(text)) == text


@pytest.mark.parametrize("text", ["2", "2@", "x@3", "1@2+"])
def test_what_is_no_outage_is_refused(text):
    with pytest.raises(SimError, match="REPLICA@SECOND"):
        Outage.parse(text)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"replicas": 1}, "replicas is 1"),
        ({"crashes": (Outage(2, 1.0),)}, "crashes is 2@1"),
        ({"drains": (Outage(0, -1.0),)}, "drains is 0@-1"),
        ({"lag_s": -1.0}, "lag_s is -1"),
    ],
)
def test_a_fleet_that_cannot_be_is_refused(changes, said):
    with pytest.raises(SimError, match=said):
        Fleet(**changes)
