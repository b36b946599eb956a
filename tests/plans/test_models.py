"""Drafts of models counted on recorded text: those that the one-sequence loop made while it wrote it."""

import json
import shlex
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from cli.main import main
from models import LoneProposer, RunnerTarget
from models.draft_model import DraftModel
from models.heads import LinearHeads, build_heads, write_heads
from models.llama import Llama
from models.loading import open_model
from models.protocol import Chunk
from plans.advice import advice
from plans.answers import Plan
from plans.errors import PlanError
from plans.gain import ShareOfPass
from plans.hardware import HARDWARE
from plans.logs import Log, Recording
from plans.measured import FORMAT, CostFile, DraftTimes, Point
from plans.methods import Config
from plans.model_replay import ModelMethod, ModelReplay
from plans.plan import Asked, Models, make_plan
from plans.roofline import Roofline
from plans.sample import Reservoir
from plans.tokens import Words
from plans.weights import shape_of_heads, shape_of_model
from server.config import load_config
from spec import Chain, Draft, Dynamic, SamplingParams, SpecConfig, generate
from tests.heads.tiny import CONFIG, KINDS, Seeded, target_weights, tiny_heads
from tests.models.folders import LETTERS, bpe, write_model
from tests.plans.test_plan import KNOWN, Flat

WEIGHTS = target_weights()
SIZES = (1, 2, 3, 5)
DEPTH = 3


def drafter(kind):
    if kind == "model":
        return DraftModel(Llama(CONFIG, replace(WEIGHTS, layers=WEIGHTS.layers[:6])))
    return build_heads(tiny_heads(kind), CONFIG, WEIGHTS, "numpy")


def methods(kind, cost=None):
    proposer = drafter(kind)
    chain = ModelMethod(
        kind, "", Draft(kind), "heads", proposer, proposer.max_depth or 16 if kind != "model" else 16,
        ShareOfPass(0.1, cost or Flat()), ShareOfPass(0.1, cost or Flat()),
    )  # fmt: skip
    return [chain, chain._replace(name=f"{kind}-tree", max_depth=DEPTH, top=2)]


def target(kind):
    return Llama(CONFIG, WEIGHTS).with_taps(drafter(kind).taps)


def written(kind, speculative, temperature, seed):
    """What the loop generates with such drafts, as a recording, and the statistics of its rounds."""
    lone = RunnerTarget(target(kind), 16, 8)
    prompt = np.random.default_rng(seed).integers(0, CONFIG.vocab_size, 7).tolist()
    params = SamplingParams(temperature=temperature)
    found = generate(
        lone, speculative, prompt, params, seed, 40, (), proposer=LoneProposer(drafter(kind), lone)
    )  # fmt: skip
    return Recording(np.array([*prompt, *found.tokens]), len(prompt), None), found.stats


@pytest.mark.parametrize("kind", ["model", *KINDS])
@pytest.mark.parametrize("temperature", [0.0, 0.6])
def test_rounds_are_those_of_the_loop_that_wrote_the_text(kind, temperature):
    both = methods(kind)
    replay = ModelReplay(target(kind), both, SIZES)
    most = both[0].max_depth
    shapes = [(method, size) for method in both for size in SIZES]
    num_accepted = 0
    for i, (method, size) in enumerate(shapes):
        if method.top > 1:
            speculative = SpecConfig(kind, shape=Dynamic(size, 2, DEPTH), rule="match", draft_temperature=1.0)
        else:
            speculative = SpecConfig(kind, min(size, most), rule="match", draft_temperature=1.0)
        recording, stats = written(kind, speculative, temperature, i)
        assert replay.can_take(recording)
        drafted, accepted = replay.rounds(recording)[i]
        lengths = np.arange(len(accepted))
        assert accepted.sum() == drafted.sum() == stats.rounds
        #   in the last rounds of an answer the loop drafts no more than is asked for
        by_depth = [int(accepted[d:].sum()) for d in range(1, len(accepted))]
        of_loop = stats.accepted_by_depth + [0] * (len(by_depth) - len(stats.accepted_by_depth))
        assert all(0 <= counted - own <= 1 for counted, own in zip(by_depth, of_loop, strict=True))
        assert stats.drafted <= drafted @ lengths <= stats.drafted + size * (size + 1)
        num_accepted += stats.accepted
    assert num_accepted > 0


def test_what_the_target_thinks_of_the_text_is_said():
    replay = ModelReplay(target("linear"), methods("linear"), SIZES)
    model = Llama(CONFIG, WEIGHTS)
    recording, _ = written("linear", SpecConfig("linear", 2, rule="match"), 0.0, 3)
    replay.rounds(recording)
    assert replay.best_share == 1
    replay.check()
    model.bind(1, 128)
    noise = Recording(np.random.default_rng(0).integers(0, 97, 60), 9, None)
    other = ModelReplay(target("linear"), methods("linear"), SIZES)
    other.rounds(noise)
    rows = Llama(CONFIG, WEIGHTS)
    rows.bind(60, 1)
    laws = rows.forward([Chunk(noise.tokens.tolist(), 0, range(60), 60)]).astype(float)
    laws -= np.log(np.exp(laws).sum(axis=1, keepdims=True))
    expected = np.mean([laws[i - 1, noise.tokens[i]] for i in range(9, 60)])
    assert other.mean_logprob == pytest.approx(expected, rel=1e-4)
    with pytest.raises(PlanError, match="as good as noise to the target"):
        other.check()


def test_longer_texts_than_a_pass_are_read_in_parts(monkeypatch):
    recording, _ = written("eagle3", SpecConfig("eagle3", 3, rule="match"), 0.0, 5)
    whole = ModelReplay(target("eagle3"), methods("eagle3"), SIZES)
    expected = whole.rounds(recording)
    monkeypatch.setattr("plans.model_replay._PASS_TOKENS", 5)
    monkeypatch.setattr("plans.model_replay._PLACES", 3)
    parts = ModelReplay(target("eagle3"), methods("eagle3"), SIZES)
    assert (parts.rounds(recording) == expected).all()
    assert parts.mean_logprob == pytest.approx(whole.mean_logprob)
    assert parts.best_share == whole.best_share


def test_a_request_that_models_have_no_places_for_or_without_a_prompt_is_left_out():
    replay = ModelReplay(target("model"), methods("model"), SIZES)
    assert replay.can_take(Recording(np.zeros(112, int), 1, None))
    assert not replay.can_take(Recording(np.zeros(113, int), 1, None))
    assert not replay.can_take(Recording(np.zeros(9, int), 0, None))


def test_every_request_is_as_likely_to_be_drawn():
    recordings = [Recording(np.array([i, i]), 1, None) for i in range(10)]
    counts = np.zeros(10)
    for seed in range(3000):
        reservoir = Reservoir(3, seed)
        for recording in recordings:
            reservoir.offer(recording)
        drawn = [int(recording.tokens[0]) for recording in reservoir.recordings()]
        assert drawn == sorted(set(drawn))
        assert len(drawn) == 3
        counts[drawn] += 1
    assert np.abs(counts / 3000 - 0.3).max() < 0.04
    few = Reservoir(30, 0)
    for recording in recordings:
        few.offer(recording)
    assert [r.tokens[0] for r in few.recordings()] == list(range(10))


def test_a_layer_of_drafts_costs_a_step_of_every_sequence_and_followed_node():
    class Rows(Flat):
        def pass_s(self, num_rows, batch, context):
            return np.array(num_rows)

    chain, tree = methods("model")

    class Asking(Rows):
        def pass_s(self, num_rows, batch, context):
            return 100.0 + num_rows

    chain, tree = (method._replace(first=Asking(), later=Rows()) for method in (chain, tree))
    assert chain.draft_s(5, 2, 0) == 102 + 4 * 2
    assert tree.draft_s(5, 2, 0) == 102 + 4 + 4  # three layers, two nodes followed
    assert tree.draft_s(2, 1, 0) == 101 + 2


def test_a_step_reads_what_drafts_and_nothing_else():
    of_target = shape_of_model("target", CONFIG, WEIGHTS)
    dim, kv, q, ffn = CONFIG.dim, CONFIG.kv_dim, CONFIG.q_dim, CONFIG.ffn_dim
    layer = 2 * q * dim + 2 * kv * dim + 3 * ffn * dim
    assert of_target.params_b * 1e9 == pytest.approx(8 * layer + 97 * dim)
    assert (of_target.layers, of_target.kv_bytes, of_target.bits) == (8, 2 * 8 * kv * 2, 32)
    shapes = {kind: shape_of_heads("h", tiny_heads(kind), CONFIG, WEIGHTS) for kind in KINDS}
    words = 40 * dim
    assert shapes["linear"].params_b * 1e9 == pytest.approx(4 * dim * dim + words)
    assert shapes["medusa"].params_b * 1e9 == pytest.approx(2 * dim * dim + words)
    assert shapes["eagle"].params_b * 1e9 == pytest.approx(2 * dim * dim + layer + words)
    assert shapes["eagle3"].params_b * 1e9 == pytest.approx(3 * dim * dim + layer + q * dim + 2 * kv * dim + words)
    assert [shape.kv_bytes for shape in shapes.values()] == [0, 0, 2 * kv * 2, 2 * kv * 2]
    whole = shape_of_heads("h", tiny_heads("linear", is_reduced=False), CONFIG, WEIGHTS)
    assert whole.params_b * 1e9 == pytest.approx(4 * dim * dim + 97 * dim)
    assert Roofline(HARDWARE["h100"], whole).pass_s(np.array([1.0]), 1, 100)[0] > 500e-6


def log_of(path, kind="model", num=6):
    rows = []
    for seed in range(num):
        recording, _ = written(kind, SpecConfig(kind, 3, rule="match"), 0.0, seed)
        ids = recording.tokens.tolist()
        rows.append({"prompt": ids[:7], "completion": ids[7:], "category": ("even", "odd")[seed % 2]})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_plan_weighs_what_models_draft_with_what_text_does(tmp_path):
    path = log_of(tmp_path / "log")
    cost = Flat(0.01)
    models = Models(target("model"), "the target", methods("model", cost), 4, 1)
    plan = make_plan(Log([path], None, Words()), Asked([KNOWN["lookup"]], SIZES, [], cost, (1, 8), 1, models))
    sample = plan.log.sample
    assert (sample.num_requests, sample.num_tokens, sample.num_left_out, sample.seed) == (4, 160, 0, 1)
    assert sample.best_share == 1
    assert {answer.method for answer in plan.sizes} == {"lookup", "model", "model-tree"}
    for answer in plan.sizes:
        assert sum(answer.requests_by_speed) == (6 if answer.method == "lookup" else 4)
        assert answer.speed[0].low <= answer.speed[0].value <= answer.speed[0].high
    of = {(answer.method, answer.size): answer for answer in plan.sizes}["model", 3]
    #   a draft of three costs three tenths of a plain pass beside its rows
    assert of.speed[0].value == pytest.approx(of.tokens_per_round.value / (1.03 + 0.3))
    assert sum(category.num_tokens for category in plan.categories) == 160
    assert plan.recommendation.method in ("model", "model-tree")


def test_a_log_of_noise_and_one_without_a_request_to_run_are_refused(tmp_path):
    models = Models(target("model"), "the target", methods("model"), 4, 1)
    noise = tmp_path / "noise"
    noise.write_text(
        json.dumps({"prompt": [1, 2], "completion": np.random.default_rng(1).integers(0, 97, 80).tolist()})
    )
    asked = Asked([KNOWN["lookup"]], SIZES, [], Flat(), (1,), 1, models)
    with pytest.raises(PlanError, match="as good as noise"):
        make_plan(Log([noise], None, Words()), asked)
    noise.write_text(json.dumps({"prompt": [], "completion": [1]}))
    with pytest.raises(PlanError, match="no request that the target could be run on: all 1 have no prompt"):
        make_plan(Log([noise], None, Words()), asked)


NAMES = [*LETTERS, "hello", *(f"<{i}>" for i in range(97 - len(LETTERS) - 4))]


@pytest.fixture
def folder(tmp_path):
    pytest.importorskip("tokenizers", reason="tokenizers come with outrider[real]")
    folder = tmp_path / "target"
    folder.mkdir()
    write_model(folder, bpe(vocabulary=NAMES))
    return folder


def run(*args):
    return CliRunner().invoke(main, ["plan", *map(str, args)])


def texts(path):
    rows = [{"prompt": "hello hello", "completion": "hello abc hello abc hello"} for _ in range(5)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def heads_file(folder, path):
    config = open_model(folder).config()
    seeded = Seeded(3)
    maps = [seeded.affine(config.dim, num * config.dim) for num in (3, 2)]
    write_heads(path, LinearHeads((1, config.num_layers), *maps), config)
    return path


def test_the_command_runs_models_on_a_sample_and_says_so(folder, tmp_path):
    log, heads = texts(tmp_path / "log"), heads_file(folder, tmp_path / "h.safetensors")
    args = (log, "--target", folder, "--draft-model", folder, "--heads", heads, "--sample", 3, "--seed", 5)
    shown = run(*args, "--html", tmp_path / "p.html", "--batches", "1,4", "--explain")
    assert shown.exit_code == 0, shown.output
    assert "models were run on 3 requests" in shown.output
    assert "seed 5" in shown.output
    assert "models were run on 3 requests" in (tmp_path / "p.html").read_text()
    #   the roofline is of the target's own file, that of a layer of drafts of what drafts
    assert f"roofline of {folder} on h100" in shown.output
    assert f"a layer of linear drafts: roofline of {heads} on h100" in shown.output
    written = run(*args, "--json", "-", "--batches", "1,4", "--draft-step", 0.5)
    plan = msgspec.json.decode(written.output, type=Plan)
    assert plan.log.sample.num_requests == 3
    assert not plan.log.is_approximate
    of = {(answer.method, answer.size): answer for answer in plan.sizes}
    assert {"model", "model-tree", "linear", "linear-tree"} < {name for name, _ in of}
    #   it drafts for itself, and halves of a pass add up
    rounds = of["model", 4]
    assert rounds.speed[0].value == pytest.approx(rounds.tokens_per_round.value / 3, rel=0.05)


def test_what_drafts_take_is_measured_and_planned_with(folder, tmp_path):
    heads, file = heads_file(folder, tmp_path / "h.safetensors"), tmp_path / "cost.json"
    options = ("--rows", "1,3", "--contexts", "8", "--repeat", "1", "--kernel", "numpy", "--json", file)
    args = ["measure", "--model", folder, "--heads", heads, "--draft-model", folder, "--batches", "1,2", *options]
    shown = CliRunner().invoke(main, [*map(str, args)])
    assert shown.exit_code == 0, shown.output
    assert "drafts by linear, batch   2" in shown.output
    cost = msgspec.json.decode(file.read_bytes(), type=CostFile)
    assert cost.drafts.keys() == {"model", "linear"}
    assert [(p.rows, p.batch, p.context) for p in cost.drafts["model"].first] == [(1, 1, 8), (2, 2, 8)]
    #   times of a tiny model are noise: known ones in their place
    points = [Point(rows, 1, 8, 0.01) for rows in (1, 17)]
    first, later = ([Point(n, n, 8, seconds * n) for n in (1, 2)] for seconds in (0.008, 0.004))
    drafts = {draft: DraftTimes(first, later) for draft in cost.drafts}
    file.write_bytes(msgspec.json.encode(CostFile(FORMAT, "m", points, "", drafts)))
    args = (texts(tmp_path / "log"), "--target", folder, "--draft-model", folder, "--cost", file)
    written = run(*args, "--json", "-", "--batches", "1,4", "--explain")
    plan = msgspec.json.decode(written.output, type=Plan)
    of = {(answer.method, answer.size): answer for answer in plan.sizes}["model", 4]
    assert of.speed[0].value == pytest.approx(of.tokens_per_round.value / (1 + 0.8 + 3 * 0.4))
    #   a batch of four is past what was measured
    assert of.speed[1].value == pytest.approx(of.tokens_per_round.value / (1 + 3.2 + 3 * 1.6))
    one = CliRunner().invoke(main, ["measure", "--model", str(folder), "--heads", str(heads), "--batches", "1"])
    assert one.exit_code == 2
    assert "--batches: two or more" in one.output


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--heads", "HEADS"], "--heads has no effect here: it needs --target"),
        (["--sample", 3], "--sample has no effect here: it needs --target"),
        (["--target", "TARGET"], "--target has no effect here: it needs --draft-model or --heads"),
        (["--target", "TARGET", "--heads", "HEADS", "--tokenizer", "words"], "--target has its own, which is taken"),
        (["--target", "gone", "--heads", "HEADS"], "gone: no model at gone"),
        (["--target", "TARGET", "--draft-model", "gone"], "--draft-model gone: no model at gone"),
        (["--target", "TARGET", "--heads", "TARGET/config.json"], "--heads"),
        (["--target", "TARGET", "--draft-model", "OTHER"], "'he' to the target"),
        (["--target", "TARGET", "--heads", "HEADS", "--cost", "COST"], "no times of drafts by linear"),
        (["--target", "TARGET", "--heads", "HEADS", "--acceptance", "linear=0.5"], "a name that no other method has"),
    ],
)
def test_what_does_not_go_together_is_refused(folder, tmp_path, options, told):
    if "OTHER" in options:
        (tmp_path / "other").mkdir()
        swapped = [*NAMES]
        a, b = swapped.index("he"), swapped.index("ll")
        swapped[a], swapped[b] = swapped[b], swapped[a]
        write_model(tmp_path / "other", bpe(vocabulary=swapped))
    points = [Point(rows, 1, 64, 0.01 * rows) for rows in (1, 2)]
    cost = tmp_path / "cost.json"
    cost.write_bytes(msgspec.json.encode(CostFile(FORMAT, "m", points)))
    names = {
        "TARGET": folder,
        "HEADS": heads_file(folder, tmp_path / "h.safetensors"),
        "OTHER": tmp_path / "other",
        "COST": cost,
        "TARGET/config.json": folder / "config.json",
    }
    shown = run(texts(tmp_path / "log"), *(names.get(option, option) for option in options))
    assert shown.exit_code == 2, shown.output
    assert told in " ".join(shown.output.replace("│", " ").split())


@pytest.mark.parametrize("kind", ["model", *KINDS])
@pytest.mark.parametrize("size", [1, 3])
def test_what_is_recommended_is_a_configuration_of_each_engine_that_has_it(tmp_path, kind, size):
    for method in [each._replace(file="a b/heads.safetensors", target="smollm2-135m") for each in methods(kind)]:
        written = advice(Config(method.name, size), method, is_adaptive=False)
        own = tmp_path / "runtime.toml"
        own.write_text(written["outrider"])
        loaded = load_config(own, {})
        assert loaded.model.source == "smollm2-135m"
        config = loaded.engine.speculative
        assert (config.draft, config.model) == (kind, method.file)
        assert config.tree_shape == (Chain(size) if method.top == 1 else Dynamic(size, 2, min(size, DEPTH)))
        vllm = written["vllm"].partition("--speculative-config ")[2]
        assert bool(vllm) is (kind != "linear")
        if vllm:
            config = json.loads(shlex.split(vllm, comments=True)[0])
            assert config["model"] == method.file
            assert config["num_speculative_tokens"] == (size if method.top == 1 else min(size, DEPTH))
        for engine, has_it in (("sglang", ("model", "eagle", "eagle3")), ("llama.cpp", ("model", "eagle3"))):
            words = shlex.split(written[engine], comments=True)
            assert (method.file in words) is (kind in has_it), written[engine]
