"""Mistakes in reading traces and recordings, and in saying from when a request waits, simulated or real."""

from tests.mutants.mutant import Mutant

LAYOUTS, RECORDINGS, LATENESS = (f"tests/sims/test_{name}.py" for name in ("layouts", "recordings", "lateness"))
LOAD = "tests/server/test_load.py::test_"

MUTANTS = [
    Mutant(
        "read a byte order mark as text",
        "sims/files.py",
        '"utf-8-sig"',
        '"utf-8"',
        (LAYOUTS,),
    ),
    Mutant(
        "take the seconds of a trace for milliseconds",
        "sims/traces/json_layouts.py",
        "said.output_length, said.timestamp, said.hash_ids",
        "said.output_length, (said.timestamp or 0) / 1e3, said.hash_ids",
        (LAYOUTS,),
    ),
    Mutant(
        "take hash ids for any length of prompt",
        "sims/traces/json_layouts.py",
        "not low <= len(hash_ids) <= high",
        "False",
        (LAYOUTS,),
    ),
    Mutant(
        "let the next turn come at its own time, answered or not",
        "sims/clients.py",
        "            await before.wait()\n",
        "",
        (LAYOUTS,),
    ),
    Mutant(
        "let the next turn come as soon as the answer is there",
        "sims/clients.py",
        "loop.time() + client.pause_s",
        "loop.time()",
        (LAYOUTS,),
    ),
    Mutant(
        "put rows without a time at the beginning",
        "sims/traces/reading.py",
        "        elif at_s is None and has_times:\n",
        "        elif False:\n",
        (LAYOUTS,),
    ),
    Mutant(
        "run a trace without times at its times",
        "sims/workload.py",
        "isinstance(config.arrivals, Recorded) and not trace.has_times",
        "False",
        (LAYOUTS,),
    ),
    Mutant(
        "answer from a conversation without what was said before",
        "sims/recordings/layouts.py",
        "_history(turns[:at])",
        "_history(turns[at - 1 : at])",
        (RECORDINGS,),
    ),
    Mutant(
        "leave out of an answer's past what is no text",
        "sims/recordings/layouts.py",
        '            raise UnusableError("a message without text or role before the answer")\n',
        "            continue\n",
        (RECORDINGS,),
    ),
    Mutant(
        "forget what kind of conversation it was",
        "sims/recordings/layouts.py",
        "    return None if category is None or isinstance(category, (dict, list)) else str(category)\n",
        "    return None\n",
        (RECORDINGS,),
    ),
    Mutant(
        "count what a client waited from when it was let in",
        "sims/clients.py",
        "start_s = last_s if self._due_s is None else min(self._due_s, last_s)",
        "start_s = last_s",
        (LATENESS,),
    ),
    Mutant(
        "hide that requests were submitted late",
        "sims/clients.py",
        "max(0.0, self._loop.time() - self._due_s)",
        "0.0",
        (LATENESS,),
    ),
    Mutant(
        "count a request of a load from when it was sent",
        "server/load.py",
        "group.create_task(ask(plan, due_s))",
        "group.create_task(ask(plan, now_s()))",
        (LOAD + "requests_that_are_sent_late_count_from_when_they_were_due",),
    ),
    Mutant(
        "wait for the answer before the next request of an open loop",
        "server/load.py",
        "group.create_task(ask(plan, due_s))",
        "await ask(plan, due_s)",
        (LOAD + "in_an_open_loop_no_request_waits_for_another",),
    ),
    Mutant(
        "count a request of a load from when it was connected",
        "server/load_client.py",
        "            ttft_s = came_s[0] - due_s if came_s else None\n",
        "            ttft_s = came_s[0] - due_s - late_s if came_s else None\n",
        (LOAD + "connecting_counts",),
    ),
    Mutant(
        "call a load a success that was refused whole",
        "server/load.py",
        "        return is_shown and is_clean\n",
        "        return is_clean\n",
        (LOAD + "nothing_served_is_no_success",),
    ),
    Mutant(
        "forget the requests under way when a load is broken off",
        "server/load.py",
        'counted["broken_off"] = num_made - len(outcomes)',
        'counted["broken_off"] = 0',
        (LOAD + "broken_off_those_under_way_are_told_apart",),
    ),
]
