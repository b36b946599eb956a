"""What /metrics tells adds up, and its gauges return to zero."""

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.server.harness import Client, serving, wait_until

DASHBOARD = Path(__file__).resolve().parents[2] / "docs/grafana/outrider.json"


def families(server):
    return {family.name: family for family in text_string_to_metric_families(server.http.get("/metrics").text)}


def test_gauges_return_to_zero_after_everything_is_cancelled():
    with serving("--set", "engine.max_running=4", "--set", "model.min_pass_s=0.02") as server:
        clients = [Client(server, {"prompt": "ba" * 50, "max_tokens": 4000, "stream": i % 2 == 0}) for i in range(10)]
        wait_until(lambda: server.value("vllm:num_requests_running") == 4)
        wait_until(lambda: server.value("vllm:num_requests_waiting") == 6)
        assert server.value("vllm:num_requests_waiting_by_reason", reason="capacity") == 6
        assert server.value("vllm:num_requests_waiting_by_reason", reason="deferred") == 0
        assert server.value("tl_engine_blocks", state="held") > 0
        assert 0 < server.value("vllm:kv_cache_usage_perc") <= 1
        total = server.value("tl_engine_blocks")
        for client in clients:
            client.close()
        server.wait_idle()
        told = families(server)
        gauges = {name for name, family in told.items() if family.type == "gauge" and not name.endswith("_created")}
        assert len(gauges) == 9
        for name in gauges - {"tl_engine_blocks", "tl_engine_spec_accept_rate", "tl_engine_spec_acceptance_length"}:
            assert {sample.value for sample in told[name].samples} == {0}, name
        assert server.value("tl_engine_blocks", state="held") == 0
        assert server.value("tl_engine_blocks") == total
        assert server.value("tl_engine_conservation_violations_total") == 0
        cancels = server.cancels()
        assert sum(cancels.values()) == 10
        assert cancels["waiting"] >= 5
        assert server.value("tl_server_responses_total", status="499") == 10
        assert server.value("vllm:request_success_total", finished_reason="abort") == 10
        assert server.value("vllm:e2e_request_latency_seconds_count") == 0


def test_counts_are_of_what_was_delivered(plain):
    names = ["vllm:generation_tokens_total", "vllm:prompt_tokens_total", "vllm:prefix_cache_hits_total"]
    names += ["vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"]
    names += [
        "vllm:request_success_total",
        "vllm:time_to_first_token_seconds_count",
        "vllm:spec_decode_num_drafts_total",
    ]
    names += ["vllm:e2e_request_latency_seconds_count"]
    before = [plain.value(name) for name in names]
    body = {"prompt": "a prompt of two blocks or even more", "max_tokens": 150, "temperature": 0, "ignore_eos": True}
    plain.post(body)
    answer = plain.post(body).json()
    usage, told = answer["usage"], answer["metrics"]["speculative_decoding"]
    found = dict(zip(names, (plain.value(n) - b for n, b in zip(names, before, strict=True)), strict=True))
    assert found["vllm:generation_tokens_total"] == 300
    assert found["vllm:prompt_tokens_total"] == 2 * usage["prompt_tokens"]
    assert found["vllm:prefix_cache_hits_total"] == usage["prompt_tokens_details"]["cached_tokens"] > 0
    assert found["vllm:spec_decode_num_drafts_total"] == 2 * told["num_spec_steps"]
    assert found["vllm:spec_decode_num_draft_tokens_total"] == 2 * told["num_draft_tokens"]
    assert found["vllm:spec_decode_num_accepted_tokens_total"] == 2 * told["num_accepted_draft_tokens"] > 0
    for counted in ("vllm:request_success_total", "vllm:time_to_first_token_seconds_count"):
        assert found[counted] == 2
    per_position = plain.value("vllm:spec_decode_num_accepted_tokens_per_pos_total")
    assert per_position == plain.value("vllm:spec_decode_num_accepted_tokens_total")
    drafts, had = (
        plain.value(name) for name in ("vllm:spec_decode_num_drafts_total", "tl_engine_spec_drafts_per_pos_total")
    )
    assert had == plain.value("vllm:spec_decode_num_draft_tokens_total"), "of chains every layer has one"
    length = plain.value("tl_engine_spec_acceptance_length")
    assert length == 1 + plain.value("vllm:spec_decode_num_accepted_tokens_total") / drafts
    assert plain.value("tl_engine_spec_failed_proposals_total") == 0
    rate = plain.value("tl_engine_spec_accept_rate")
    accepted = plain.value("vllm:spec_decode_num_accepted_tokens_total")
    assert rate == accepted / plain.value("vllm:spec_decode_num_draft_tokens_total")
    wasted = plain.value("tl_engine_spec_wasted_tokens_total")
    assert wasted == plain.value("vllm:spec_decode_num_draft_tokens_total") - accepted


def test_times_of_a_request_sum_to_the_whole():
    with serving("--set", "engine.max_running=1", "--set", "model.min_pass_s=0.05") as server:
        first = Client(server, {"prompt": "ba", "max_tokens": 8, "ignore_eos": True, "stream": True})
        first.read_until(b'"text"')
        server.post({"prompt": "x" * 50, "max_tokens": 4, "ignore_eos": True})
        first.read_until(b"[DONE]")
        first.close()
        parts = {part: server.value(f"vllm:request_{part}_time_seconds_sum") for part in ("queue", "prefill", "decode")}
        counts = {server.value(f"vllm:request_{part}_time_seconds_count") for part in parts}
        whole = server.value("vllm:e2e_request_latency_seconds_sum")
        to_first = server.value("vllm:time_to_first_token_seconds_sum")
    assert counts == {2}
    assert min(parts.values()) > 0.04  # a pass takes as long, and the second has waited for the first
    assert parts["queue"] + parts["prefill"] == pytest.approx(to_first, abs=0.02)
    assert sum(parts.values()) <= whole


def test_dashboard_asks_for_metrics_that_exist(plain):
    plain.post({"prompt": "ba ni ba ni ba ni", "max_tokens": 50, "temperature": 0})
    Client(plain, {"prompt": "ba", "max_tokens": 4000, "ignore_eos": True}).close()
    wait_until(lambda: plain.value("tl_engine_cancels_total") > 0)
    known = {sample.name for family in families(plain).values() for sample in family.samples}
    asked = set(re.findall(r"\b(?:vllm:|tl_)\w+", DASHBOARD.read_text()))
    assert len(asked) > 15
    assert asked <= known


def test_cached_tokens_are_a_prompts_whatever_its_choices(plain):
    prompts = ["what was sent before is found in the cache", "and so is this one, which is longer than the other"]

    def cached(prompt, n):
        answer = plain.post({"prompt": prompt, "n": n, "max_tokens": 2, "temperature": 1}).json()
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    for prompt in prompts:
        cached(prompt, 1)
    alone = [cached(prompt, 1) for prompt in prompts]
    assert min(alone) > 0
    assert [cached(prompt, 3) for prompt in prompts] == alone
    assert cached(prompts, 3) == sum(alone)
