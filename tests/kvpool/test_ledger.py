"""The ledger: a request's life in blocks, and the ways in which blocks have been lost elsewhere."""

import gc
import random
import weakref

import pytest

from kvpool import KvPool, KvPoolError, Ledger, blocks_for

PROMPT = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]


def make(num_blocks=8, block_tokens=4, **options):
    return Ledger(KvPool(num_blocks, block_tokens), **options)


def run(ledger, seq, prompt, salt=None):
    """Admit and prefill a whole prompt; how much of it was cached."""
    cached = ledger.admit(seq, prompt, salt, len(prompt))
    ledger.commit(seq, prompt[cached:])
    check(ledger)
    return cached


def check(ledger):
    ledger.check()
    ledger.pool.check_index()


def books(ledger):
    pool = ledger.pool
    blocks = range(pool.num_blocks)
    order = list(pool._evictable)
    return pool.stats(), order, [pool.ref_count(b) for b in blocks], [pool.fill(b) for b in blocks]


def test_a_request_holds_exactly_its_blocks_from_admission_to_release():
    ledger = make()
    assert ledger.admit(1, PROMPT, None, 6) == 0
    assert (len(ledger.table(1)), ledger.cached(1)) == (2, 0)
    assert ledger.commit(1, PROMPT[:6]) == 0
    assert ledger.cached(1) == 6
    assert ledger.extend(1, 4)
    ledger.commit(1, PROMPT[6:])
    assert ledger.extend(1, 1 + 4)  # the last token and four drafts, of which one is kept
    assert len(ledger.table(1)) == 4
    assert ledger.commit(1, [11, 12]) == 1
    assert (ledger.cached(1), len(ledger.table(1))) == (12, 3)
    check(ledger)
    assert ledger.release(1) == 3
    check(ledger)
    assert ledger.pool.stats() == (8, 5, 3, 0)


def test_rejected_drafts_are_given_back_in_the_same_commit():
    ledger = make()
    run(ledger, 1, PROMPT[:6])
    before = ledger.table(1)
    assert ledger.extend(1, 7)
    assert len(ledger.table(1)) == 4
    assert ledger.commit(1, [7]) == 2
    assert ledger.table(1) == before
    assert [ledger.pool.fill(block) for block in before] == [4, 3]
    check(ledger)


def test_a_reservation_can_be_undone():
    ledger = make()
    run(ledger, 1, PROMPT[:6])
    before = books(ledger)
    ledger.extend(1, 9)
    assert ledger.commit(1, []) == 2
    assert ledger.cached(1) == 6
    assert books(ledger)[1:] == before[1:]
    check(ledger)


def test_a_second_request_reads_the_prefix_of_the_first():
    ledger = make()
    assert run(ledger, 1, PROMPT) == 0
    assert run(ledger, 2, [*PROMPT[:9], 99]) == 8
    assert ledger.table(2)[:2] == ledger.table(1)[:2]
    assert ledger.table(2)[2] != ledger.table(1)[2]
    assert ledger.pool.stats().held == 4
    assert run(ledger, 3, PROMPT[:8]) == 4  # one token at least is left to feed
    assert run(ledger, 4, PROMPT[:4]) == 0


def test_the_first_release_leaves_the_second_owner_its_blocks():
    ledger = make()
    run(ledger, 1, PROMPT)
    run(ledger, 2, PROMPT)
    shared = ledger.table(2)[:2]
    assert ledger.release(1) == 3
    assert [ledger.pool.ref_count(block) for block in shared] == [1, 1]
    check(ledger)


def test_generated_text_is_matched_like_a_prompt():
    ledger = make()
    run(ledger, 1, PROMPT)
    for token in range(11, 18):
        ledger.extend(1, 3)
        ledger.commit(1, [token])
        check(ledger)
    ledger.release(1)
    assert run(ledger, 2, [*range(1, 18), 99]) == 16


def test_the_index_learns_no_block_past_what_a_proposer_has_written():
    """A proposer that lags behind by two rounds: a block is found once both the KV and its state are there."""
    ledger = make()
    ledger.admit(1, PROMPT, None, 10)
    ledger.commit(1, PROMPT[:7], 3)
    check(ledger)
    assert found_by_another(ledger, PROMPT) == 0
    ledger.extend(1, 2)
    ledger.commit(1, PROMPT[7:9], 7)
    assert found_by_another(ledger, PROMPT) == 4
    ledger.extend(1, 1)
    ledger.commit(1, PROMPT[9:], 9)
    assert found_by_another(ledger, PROMPT) == 8
    ledger.extend(1, 8)
    ledger.commit(1, range(11, 17), 40)  # what it has written past the kept positions is worth nothing
    assert found_by_another(ledger, range(1, 30)) == 16
    check(ledger)


def found_by_another(ledger, prompt):
    cached = ledger.admit(2, prompt, None, 0)
    ledger.release(2)
    return cached


@pytest.mark.parametrize("sizes", [[20], [1] * 20, [3, 5, 4, 8], [4, 4, 12], [7, 13]])
def test_the_index_learns_the_same_whatever_the_chunks(sizes):
    ledger = make()
    tokens = list(range(20))
    assert ledger.admit(1, tokens, None, 0) == 0
    for size in sizes:
        chunk, tokens = tokens[:size], tokens[size:]
        ledger.extend(1, size)
        ledger.commit(1, chunk)
        check(ledger)
    assert ledger.pool.match(range(21)) == ledger.table(1)


def test_salts_keep_requests_apart():
    ledger = make()
    run(ledger, 1, PROMPT, "red")
    assert run(ledger, 2, PROMPT) == 0
    ledger.release(1), ledger.release(2)
    assert run(ledger, 1, PROMPT, "red") == 8


def test_the_prefix_cache_can_be_off():
    ledger = make(prefix_cache=False)
    assert run(ledger, 1, PROMPT) == run(ledger, 2, PROMPT) == 0
    assert ledger.release(1) + ledger.release(2) == 6
    assert ledger.pool.stats() == (8, 8, 0, 0)


def test_a_pass_that_never_ran_is_never_matched():
    ledger = make()
    ledger.admit(1, PROMPT, None, 10)
    ledger.release(1)
    assert ledger.admit(2, PROMPT, None, 10) == 0
    assert ledger.admit(3, PROMPT, None, 10) == 0  # nor one that is still under way
    ledger.commit(3, PROMPT[:4])
    ledger.release(3)
    assert ledger.admit(1, PROMPT, None, 10) == 4
    check(ledger)


def test_rejected_tokens_are_never_matched():
    ledger = make()
    run(ledger, 1, PROMPT[:6])
    ledger.extend(1, 6)
    ledger.commit(1, [7])
    assert ledger.pool.match([*PROMPT[:6], 7, 8, 9]) == ledger.table(1)[:1]
    ledger.extend(1, 2)
    ledger.commit(1, [88, 89])
    assert ledger.pool.match([*PROMPT[:6], 7, 88, 89]) == ledger.table(1)[:2]
    assert ledger.pool.match([*PROMPT[:6], 7, 8, 9]) == ledger.table(1)[:1]


def test_releasing_what_holds_nothing_is_no_error():
    ledger = make()
    before = books(ledger)
    assert ledger.release(1) == 0
    run(ledger, 1, PROMPT)
    assert [ledger.release(1), ledger.release(1)] == [3, 0]
    check(ledger)
    assert before[0].held == ledger.pool.stats().held == 0


def test_late_output_frees_nothing_twice():
    ledger = make()
    ledger.admit(1, PROMPT, None, 10)
    assert ledger.release(1) == 3
    ledger.admit(2, [50] * 10, None, 10)  # has the very same blocks
    before = books(ledger)
    for late in (lambda: ledger.commit(1, PROMPT), lambda: ledger.extend(1, 1), lambda: ledger.table(1)):
        with pytest.raises(KvPoolError, match="seq: 1 holds no blocks"):
            late()
    with pytest.raises(KvPoolError, match="seq: 3"):
        ledger.cached(3)
    assert books(ledger) == before
    check(ledger)


def test_an_id_can_be_used_again_at_once_and_not_sooner():
    ledger = make()
    run(ledger, 1, PROMPT)
    before = books(ledger)
    with pytest.raises(KvPoolError, match="seq: 1 was admitted already"):
        ledger.admit(1, [5], None, 1)
    assert books(ledger) == before
    ledger.release(1)
    assert ledger.admit(1, [5], None, 1) == 0
    check(ledger)


@pytest.mark.parametrize(
    ("prompt", "num_tokens", "message"), [([], 1, "prompt: it is empty"), (PROMPT, -1, "num_tokens: -1")]
)
def test_admission_refuses_what_makes_no_sense(prompt, num_tokens, message):
    ledger = make()
    with pytest.raises(KvPoolError, match=message):
        ledger.admit(1, prompt, None, num_tokens)
    assert ledger.release(1) == 0


def test_more_tokens_than_were_reserved_are_refused():
    ledger = make()
    ledger.admit(1, PROMPT, None, 5)
    before = books(ledger)
    with pytest.raises(KvPoolError, match="tokens: 6, room was made for 5"):
        ledger.commit(1, PROMPT[:6])
    assert books(ledger) == before
    assert ledger.cached(1) == 0


def test_no_more_room_than_the_prompt_has_is_made():
    ledger = make(num_blocks=3)
    assert ledger.admit(1, PROMPT, None, 1000) == 0
    assert len(ledger.table(1)) == 3
    check(ledger)


def test_admission_that_does_not_fit_changes_nothing():
    ledger = make(num_blocks=5)
    run(ledger, 1, PROMPT)
    ledger.release(1)
    run(ledger, 2, [30, 31, 32, 33, 34, 35, 36, 37])
    # two evictable blocks are matched, one is free: a prompt of 13 takes both and needs two more
    before = books(ledger)
    assert before[0] == (5, 1, 2, 2)
    assert ledger.admit(3, [*PROMPT, 11, 12, 13], None, 5) is None
    assert books(ledger) == before
    assert ledger.release(3) == 0
    assert ledger.admit(3, [*PROMPT, 11, 12, 13], None, 4) == 8
    check(ledger)


def test_admission_never_evicts_what_it_has_matched():
    ledger = make(num_blocks=4)
    run(ledger, 1, PROMPT[:8])
    ledger.release(1)
    run(ledger, 2, [30, 31])
    ledger.release(2)
    assert ledger.admit(3, [*PROMPT, *PROMPT], None, 8) == 8
    assert ledger.extend(3, 1) is False
    check(ledger)


def test_extension_that_does_not_fit_changes_nothing():
    ledger = make(num_blocks=3)
    run(ledger, 1, PROMPT)
    before = books(ledger)
    assert ledger.extend(1, 3) is False
    assert books(ledger) == before
    assert ledger.extend(1, 2)
    check(ledger)


def test_extension_by_less_than_nothing_is_refused():
    ledger = make()
    run(ledger, 1, PROMPT)
    before = books(ledger)
    for num_tokens in (-1, -2, -7):
        with pytest.raises(KvPoolError, match=f"num_tokens: {num_tokens}"):
            ledger.extend(1, num_tokens)
    assert books(ledger) == before
    check(ledger)


def test_room_in_the_last_block_is_used_before_another_is_asked_for():
    ledger = make(num_blocks=2)
    run(ledger, 1, PROMPT[:6])  # six of eight slots: by whole blocks, two more tokens would need a third
    assert ledger.pool.num_available == 0
    assert ledger.extend(1, 2)
    ledger.commit(1, [7, 8])
    check(ledger)


def test_lost_memory_is_forgotten_whole():
    ledger = make()
    run(ledger, 1, PROMPT)
    run(ledger, 2, [20, 21, 22, 23, 24])
    ledger.release(2)
    ledger.forget_all()
    assert ledger.pool.stats() == (8, 8, 0, 0)
    check(ledger)
    assert ledger.release(1) == 0
    assert run(ledger, 1, PROMPT) == run(ledger, 2, [20, 21, 22, 23, 24]) == 0


@pytest.mark.parametrize(
    "break_it",
    [
        lambda ledger, table: table.append(ledger.pool.allocate()),
        lambda ledger, table: ledger.pool.set_fill(table[-1], 1),
        lambda ledger, table: ledger.pool.release(table.pop()),
        lambda ledger, table: table.pop(),
        lambda ledger, table: ledger._sequences[2].table.append(ledger.pool.allocate(1)),
    ],
)
def test_check_finds_a_table_that_does_not_fit_its_sequence(break_it):
    ledger = make()
    run(ledger, 1, PROMPT)
    ledger.admit(2, PROMPT[:4], None, 0)
    ledger.check()
    break_it(ledger, ledger._sequences[1].table)
    with pytest.raises(KvPoolError):
        ledger.check()


def test_a_thousand_requests_with_drafts_across_borders_lose_nothing():
    rng = random.Random(5)
    ledger = make(num_blocks=24)
    pool = ledger.pool
    texts = [[rng.randrange(3) for _ in range(40)] for _ in range(6)]
    running: dict[int, list[int]] = {}
    num_refused = num_cached = 0
    for seq in range(1000):
        text = rng.choice(texts)[: rng.randrange(1, 20)]
        cached = ledger.admit(seq, text, rng.choice([None, "red"]), rng.randrange(1, 20))
        if cached is None:
            num_refused += 1
        else:
            num_cached += cached
            running[seq] = [cached, len(text)]
        for other in rng.sample(sorted(running), min(3, len(running))):
            reserved = ledger._sequences[other].reserved - ledger.cached(other)
            if rng.random() < 0.7 and not reserved and not ledger.extend(other, rng.randrange(1, 9)):
                ledger.release(other)
                del running[other]
                continue
            room = ledger._sequences[other].reserved - ledger.cached(other)
            ledger.commit(other, [rng.randrange(3) for _ in range(rng.randrange(room + 1))])
            assert len(ledger.table(other)) == blocks_for(ledger.cached(other), 4)
            if rng.random() < 0.2:
                ledger.release(other)
                del running[other]
            check(ledger)
    for seq in running:
        ledger.release(seq)
        check(ledger)
    assert pool.stats().held == 0
    ledger.forget_all()
    assert pool.stats() == (24, 24, 0, 0)
    assert num_refused > 20
    assert num_cached > 100


def test_a_round_costs_the_same_however_much_is_cached():
    """Tokens and blocks touched, counted by standing in for the lists that could be walked."""

    class Counted(list):
        num_read = 0

        def __getitem__(self, item):
            got = super().__getitem__(item)
            Counted.num_read += len(got) if isinstance(item, slice) else 1
            return got

        def __iter__(self):
            Counted.num_read += len(self)
            return super().__iter__()

    def round_reads(num_cached):
        ledger = make(num_blocks=2000)
        run(ledger, 1, [t % 7 for t in range(num_cached)])
        sequence = ledger._sequences[1]
        sequence.table = Counted(sequence.table)
        sequence.unindexed = Counted(sequence.unindexed)
        Counted.num_read = 0
        for _ in range(4):
            ledger.extend(1, 5)
            ledger.commit(1, [1, 2])
        return Counted.num_read

    assert round_reads(20) == round_reads(6000) > 0


def test_finished_requests_leave_nothing_behind_without_the_collector():
    class Tokens(list):
        pass

    ledger = make()
    gc.disable()
    try:
        alive = []
        for seq in range(1000):
            tokens = Tokens([seq] * 10)
            alive.append(weakref.ref(tokens))
            ledger.admit(seq, tokens, None, 10)
            ledger.commit(seq, tokens)
            ledger.release(seq)
            del tokens
        assert not any(ref() for ref in alive)
        assert not ledger._sequences
    finally:
        gc.enable()
    check(ledger)


def test_a_copy_that_nobody_would_carry_out_is_found():
    ledger = make()
    run(ledger, 1, PROMPT)
    table = ledger._sequences[1].table
    table[-1] = ledger.pool.private_copy(table[-1], 2)
    with pytest.raises(KvPoolError, match="1 copies of shared blocks are owed"):
        ledger.check()
