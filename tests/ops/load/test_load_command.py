"""`bench load` on the tiny profile that these tests measure, and the arithmetic behind it."""

import json
import shutil

import numpy as np
import pytest

from ops.harness.boundary import InputError
from ops.load.arrivals import poisson, trace
from ops.load.report import ratio_ci
from router.fit.profile import Profile
from schemas.json_files import json_lines

pytestmark = pytest.mark.usefixtures("fitted")


@pytest.fixture(scope="module")
def bench(world):
    """The command's first arguments; no exploration, so that choices follow from the load."""
    folder, _, _ = world
    config = json.loads((folder / "config.yaml").read_text()) | {"router": {"exploration": 0.0}}
    (folder / "load.yaml").write_text(json.dumps(config))
    return [
        *["bench", "load", "--profile", folder / "held", "--routing", folder / "routing"],
        *["--config", folder / "load.yaml", "--replicas", 2],
    ]


def test_a_profile_keeps_what_a_replay_needs(world):
    folder, specadapt, _ = world
    specadapt.json(
        *["profile", "--out", folder / "drafted", "--prompts", folder / "nine.jsonl"],
        *["--config", folder / "config.yaml", "--methods", "draft_verify", "--max-tokens", 20],
    )
    measured = Profile.load(folder / "drafted")
    lengths = {p.id: len(p.token_ids) for p in measured.prompts}
    for row in measured.rows:
        assert lengths[row.prompt_id] == row.prompt_tokens
        assert len(row.recorded.token_ids) == row.output_tokens
        assert len(row.recorded.by_step()) == row.target_steps
    assert any(row.target_steps < row.output_tokens for row in measured.rows)


@pytest.mark.slow
def test_policies_are_compared_under_the_same_arrivals(world, bench):
    _, specadapt, _ = world
    arguments = [*bench, "--requests", 80, "--shares", "0.05,3"]
    figures = specadapt.json(*arguments)
    assert figures["simulated"] is True
    calm, full = figures["loads"]
    for load in (calm, full):
        offered = load["share_of_capacity"] * figures["capacity_requests_per_s"]
        assert load["offered_requests_per_s"] == pytest.approx(offered)
        policies = load["policies"]
        singles = {"only_naive", "only_ngram"}
        assert policies.keys() == {"routed", "static_table", "random", *singles}
        for name, policy in policies.items():
            assert sum(policy["shares"].values()) == pytest.approx(1.0)
            assert 0 < policy["mean_ttft_s"] < policy["mean_latency_s"] < policy["p95_latency_s"]
            assert policy["refused"] == 0
            if name in singles:
                assert policy["shares"] == {name.removeprefix("only_"): 1.0}
        best = policies["only_" + load["best_single"]]
        assert best["mean_latency_s"] == min(policies[n]["mean_latency_s"] for n in singles)
        for rival, ratios in load["routed_over"].items():
            other = best if rival == "best_single" else policies[rival]
            mean = ratios["mean_latency"]
            expected = other["mean_latency_s"] / policies["routed"]["mean_latency_s"]
            assert mean["ratio"] == pytest.approx(expected)
            assert mean["ci95"][0] <= mean["ratio"] <= mean["ci95"][1]
    # an idle system is routed as the table says; a full one spreads over all that is there
    assert calm["routed_over"]["static_table"]["mean_latency"]["ratio"] == pytest.approx(1, abs=0.1)
    assert min(full["policies"]["routed"]["shares"].values()) > 0.2
    assert len(full["policies"]["routed"]["shares"]) == 2
    for name, policy in full["policies"].items():
        assert policy["mean_latency_s"] > calm["policies"][name]["mean_latency_s"]
        assert policy["tokens_per_s"] > calm["policies"][name]["tokens_per_s"]
    assert specadapt.json(*arguments)["loads"] == figures["loads"]


def test_a_line_that_is_full_refuses(world, bench):
    folder, specadapt, _ = world
    config = json.loads((folder / "load.yaml").read_text())
    config["engine"]["max_waiting"] = 0
    (folder / "short.yaml").write_text(json.dumps(config))
    arguments = [*bench, "--config", folder / "short.yaml", "--shares", 4, "--requests", 60]
    [load] = specadapt.json(*arguments)["loads"]
    assert all(0 < policy["refused"] < 60 for policy in load["policies"].values())


def test_shared_replicas_host_every_method(world, bench):
    folder, specadapt, _ = world
    config = json.loads((folder / "load.yaml").read_text()) | {"layout": "shared"}
    (folder / "shared.yaml").write_text(json.dumps(config))
    arguments = [*bench, "--config", folder / "shared.yaml", "--shares", 0.5, "--requests", 20]
    figures = specadapt.json(*arguments)
    assert figures["settings"]["replicas"] == ["naive+ngram"] * 4


def test_arrivals_from_a_trace(world, bench):
    folder, specadapt, _ = world
    file = folder / "arrivals.jsonl"
    file.write_text("".join(json.dumps({"timestamp": 100 * i}) + "\n" for i in range(30)))
    arguments = [*bench, "--arrivals", file, "--shares", 0.5, "--requests", 30]
    assert specadapt.json(*arguments)["settings"]["arrivals"] == "arrivals.jsonl"
    assert "has 30 arrivals" in specadapt.refusal(*arguments[:-1], 31)


def test_bad_input_is_refused_with_the_field_named(world, bench):
    folder, specadapt, _ = world
    assert "--shares: numbers above 0" in specadapt.refusal(*bench, "--shares", "0.5,0")
    assert "--methods: fuzzy not in both" in specadapt.refusal(*bench, "--methods", "fuzzy")
    assert "--temperature: the profile has no" in specadapt.refusal(*bench, "--temperature", 0.5)
    before = folder / "before"
    shutil.copytree(folder / "held", before)
    rows = [row for _, row in json_lines(before / "rows.jsonl")]
    kept = [{k: v for k, v in row.items() if k != "recorded"} for row in rows]
    (before / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
    assert "profile again" in specadapt.refusal(*bench, "--profile", before)
    for seconds in (1e9, 1e300):
        rows[0]["prefill_seconds"] = seconds
        (before / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert "check the seconds" in specadapt.refusal(*bench, "--profile", before)
    broken = folder / "broken.jsonl"
    broken.write_text('{"timestamp": ')
    assert "broken.jsonl, line 1" in specadapt.refusal(*bench, "--arrivals", broken)


def test_poisson_arrivals_come_at_their_rate():
    arrivals = poisson(20_000, seed=1)
    gaps = np.diff(arrivals)
    assert arrivals[0] == 0.0
    assert gaps.min() >= 0.0
    assert gaps.mean() == pytest.approx(1.0, abs=0.03)
    assert gaps.std() == pytest.approx(1.0, abs=0.05)
    assert (poisson(20_000, seed=1) == arrivals).all()
    assert (poisson(20_000, seed=2) != arrivals).any()


def test_traces_are_stretched_to_one_arrival_a_second(tmp_path):
    table = tmp_path / "trace.csv"
    times = ["17:03.9799600", "17:04.4799600", "17:05.9799600", "18:00.0000000"]
    body = "".join(f"2023-11-16 18:{time},10,20\n" for time in times)
    table.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + body)
    assert trace(table, 3) == pytest.approx([0.0, 0.5, 2.0])
    with pytest.raises(InputError, match="has 4 arrivals, --requests asks for more"):
        trace(table, 5)
    lines = tmp_path / "trace.jsonl"
    lines.write_text('{"timestamp": 3000}\n{"timestamp": 0}\n{"timestamp": 4000}\n')
    assert trace(lines, 3) == pytest.approx([0.0, 1.5, 2.0])
    lines.write_text('{"timestamp": 0}\n{"time": 1}\n')
    with pytest.raises(InputError, match=r"trace\.jsonl, line 2: timestamp is not a number"):
        trace(lines, 2)
    lines.write_text('{"timestamp": 0}\n' * 3)
    with pytest.raises(InputError, match="at the same time"):
        trace(lines, 3)
    with pytest.raises(InputError, match=r"neither \.csv nor \.jsonl"):
        trace(tmp_path / "trace.txt", 3)


def test_the_interval_is_paired_and_keeps_neighbours_together():
    rng = np.random.default_rng(0)
    ours = rng.exponential(1.0, 400)
    assert ratio_ci(np.mean, ours, 2 * ours, seed=0) == pytest.approx((2.0, 2.0))
    # a queue: long stretches in which everybody waits; single draws would not see them
    waits = np.repeat(rng.exponential(1.0, 10), 40)
    low, high = ratio_ci(np.mean, np.ones(400), waits, seed=0)
    rng.shuffle(waits)
    calm_low, calm_high = ratio_ci(np.mean, np.ones(400), waits, seed=0)
    assert high - low > 2 * (calm_high - calm_low)
