"""Scenarios in which exploring once found the engine wrong, each the smallest that was."""

import pytest

from sims.explore.run import run
from sims.explore.scenario import from_json

ENGINE = '"num_blocks":1,"block_tokens":4,"max_batch_tokens":256,"prefix_cache":false'
ONE = '"clients":[{"request":{"prompt":[0],"params":{"temperature":0.0},"max_tokens":1}}]'

FOUND = {
    # it was served although its stream had ended with all others, and the scheduler fell over it
    "a submission is on its way as the scheduler dies": f"""
        {{"engine":{{{ENGINE},"max_model_len":1}},{ONE},"faults":[{{"kind":"die_scheduler","nth":0}}]}}""",
    # the next message found an empty pool, and the block manager died of that again
    "the block manager dies and nobody waits for it": f"""
        {{"engine":{{{ENGINE},"max_model_len":1}},{ONE},"faults":[{{"kind":"die_blocks","nth":2}}]}}""",
    # the next pass read memory that was never written
    "the runner dies and nobody waits for it": f"""
        {{"engine":{{{ENGINE},"max_model_len":2}},
         "clients":[{{"request":{{"prompt":[0],"params":{{"temperature":0.0}},"max_tokens":2}}}}],
         "faults":[{{"kind":"die_runner","nth":2}}]}}""",
    # whoever asked it later waited for ever
    "the block manager is given up and nobody waits for it": f"""
        {{"engine":{{{ENGINE},"max_model_len":1,"max_restarts":1}},{ONE},
         "faults":[{{"kind":"die_blocks","nth":0}},{{"kind":"die_blocks","nth":2}}]}}""",
    "the runner is given up and nobody waits for it": f"""
        {{"engine":{{{ENGINE},"max_model_len":1,"max_restarts":1}},{ONE},
         "faults":[{{"kind":"die_runner","nth":2}},{{"kind":"die_runner","nth":0}}]}}""",
    # its stream never ended
    "the engine is closed and a submission is behind the stop": f"""
        {{"engine":{{{ENGINE},"max_model_len":5}},
         "clients":[{{"request":{{"prompt":[0],"params":{{"temperature":0.0}},"max_tokens":1}},"at_s":0.00225}},
                    {{"request":{{"prompt":[3],"params":{{"temperature":0.0}},"max_tokens":3}}}}],
         "target_seed":100,"sharp":16.0,"close_at_s":0.00254}}""",
}


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("order", [None, *range(8)])
def test_what_was_found_holds_now(name, order):
    scenario = from_json(FOUND[name].replace('"clients"', f'"order":{"null" if order is None else order},"clients"'))
    outcome = run(scenario)
    assert outcome.violation is None
