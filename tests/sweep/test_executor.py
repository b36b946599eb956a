import os
import signal
import subprocess
import sys
import time

import pytest

from sims.sweep.executor import LocalPool, WorkerDied
from tests.test_house import ROOT


def square(number):
    if number == 3:
        raise ValueError("three")
    return number * number


def die_at_2(number):
    if number == 2:
        os._exit(9)
    return number


def pid(_):
    time.sleep(0.01)
    return os.getpid()


def test_every_item_is_answered_and_what_is_raised_is_an_answer():
    answers = dict(LocalPool(2).run(square, iter(range(6))))
    assert isinstance(answers.pop(3), ValueError)
    assert answers == {n: n * n for n in (0, 1, 2, 4, 5)}


def test_a_worker_that_dies_takes_nobody_elses_item_along():
    answers = dict(LocalPool(2).run(die_at_2, range(5)))
    assert isinstance(answers.pop(2), WorkerDied)
    assert answers == {n: n for n in (0, 1, 3, 4)}


def test_items_are_taken_as_workers_come_free_and_run_elsewhere():
    taken = []

    def items():
        for n in range(50):
            taken.append(n)
            yield n

    answers = LocalPool(2).run(pid, items())
    assert next(answers)[1] != os.getpid()
    assert len(taken) <= 4
    answers.close()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_who_started_them(how, tmp_path):
    program = (
        "import sys; from pathlib import Path; from sims.sweep.executor import LocalPool\n"
        "from tests.sweep.test_executor import stay\n"
        f"if __name__ == '__main__': list(LocalPool(2).run(stay, [{str(tmp_path)!r}] * 2))\n"
    )
    path = tmp_path / "program.py"
    path.write_text(program)
    parent = subprocess.Popen(
        [sys.executable, str(path)], env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.DEVNULL
    )
    while len(found := list(tmp_path.glob("*.pid"))) < 2:
        assert parent.poll() is None
        time.sleep(0.05)
    parent.send_signal(how)
    parent.wait()
    deadline = time.monotonic() + 20
    while any(is_alive(int(each.stem)) for each in found):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def stay(folder):
    open(f"{folder}/{os.getpid()}.pid", "w").close()
    time.sleep(60)


def is_alive(number):
    try:
        with open(f"/proc/{number}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
