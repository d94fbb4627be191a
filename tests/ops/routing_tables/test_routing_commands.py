"""Profile, fit, evaluate and route, one after the other on a tiny bundle."""

import json
import shutil

import pytest

from router.drift import Reference
from router.fit.profile import Profile
from router.table import load_table

pytestmark = pytest.mark.usefixtures("fitted")


@pytest.fixture
def explain(world):
    """The arguments that ask for a decision; a table's folder follows them."""
    given = ["--prompt", "What is seven plus two?", "--bundle", world[2].path]
    return ["routing", "explain", *given, "--routing"]


def test_a_profile_holds_every_prompt_under_every_method(world, fitted):
    folder, _, _ = world
    figures, _ = fitted
    assert figures["methods"] == ["naive", "ngram"]
    assert figures["rows"] == 16
    assert figures["harmonic_mean_speedup"]["naive"] == pytest.approx(1.0)
    assert figures["baseline"] == "naive"
    measured = Profile.load(folder / "fit")
    assert {(s.method) for s in measured.steps} == {"naive", "ngram"}
    assert {s.batch for s in measured.steps} == {1, 2}
    assert measured.meta.measured_under.threads == 1
    assert measured.meta.measured_under.bundle.startswith("tiny@")


def test_profiling_again_goes_on_where_it_stopped(world):
    folder, specadapt, _ = world
    copy = folder / "resumed"
    shutil.copytree(folder / "fit", copy)
    rows = (copy / "rows.jsonl").read_text().split("\n")
    (copy / "rows.jsonl").write_text("\n".join([*rows[:14], '{"prompt_id": "half']))
    steps = (copy / "steps.jsonl").read_text().split("\n")
    (copy / "steps.jsonl").write_text("\n".join([*steps[:1], '{"method": "half']))
    arguments = [
        *["profile", "--out", copy, "--prompts", folder / "seven.jsonl"],
        *["--config", folder / "config.yaml", "--max-tokens", 10],
    ]
    assert specadapt.json(*arguments)["rows"] == 16
    kept = (copy / "rows.jsonl").read_text().split("\n")[:14]
    assert kept == rows[:14]
    timed = (copy / "steps.jsonl").read_text().split("\n")
    assert timed[0] == steps[0]
    assert len(timed) == len(steps)
    assert "max_tokens was 10 and is 11" in specadapt.refusal(*arguments[:-1], 11)


def test_a_profile_with_requests_in_flight_keeps_the_batch_of_every_answer(world):
    folder, specadapt, _ = world
    arguments = [
        *["profile", "--out", folder / "busy", "--prompts", folder / "seven.jsonl"],
        *["--config", folder / "config.yaml", "--limit", 6, "--max-tokens", 40, "--concurrency"],
    ]
    assert specadapt.json(*arguments, 3)["rows"] == 12
    measured = Profile.load(folder / "busy")
    assert 1.5 < max(row.mean_batch for row in measured.rows) <= 3.0
    alone = Profile.load(folder / "fit")
    assert {row.mean_batch for row in alone.rows} == {1.0}
    assert "concurrency was 3 and is 2" in specadapt.refusal(*arguments, 2)


def test_fit_reports_clusters_and_assignment(world, fitted):
    folder, _, _ = world
    _, figures = fitted
    assert figures["clusters"] == 2
    assert sum(figures["sizes"]) == 40
    assert len(figures["assignment"]) == 2
    assert {m for one in figures["assignment"] for m in one.values()} <= {"naive", "ngram"}
    assert -1.0 <= figures["silhouette"] <= 1.0
    distances = Reference.read(load_table(folder / "routing").provenance["distances"], 2)
    assert (distances.prompts, len(distances.quantiles)) == (40, 2)


def test_evaluate_judges_on_other_prompts_only(world):
    folder, specadapt, _ = world
    arguments = ["evaluate", "--routing", folder / "routing", "--profile"]
    figures = specadapt.json(*arguments, folder / "held")
    assert 1 <= figures["prompts"] <= 6
    assert figures["best_single"].keys() == {"name", "speedup"}
    low, high = figures["routed_over_best_single_ci95"]
    assert low <= figures["routed_over_best_single"] <= high
    assert figures["routed"] <= figures["per_prompt_oracle"]
    assert 0.0 < figures["copy_or_not"] <= figures["per_prompt_oracle"]
    assert sum(figures["shares"].values()) == pytest.approx(1.0)
    assert "seen by the fit" in specadapt.refusal(*arguments, folder / "fit")


def test_one_profile_is_fitted_on_and_held_out_of_by_ids(world, tmp_path):
    folder, specadapt, _ = world
    ids = [prompt.id for prompt in Profile.load(folder / "fit").prompts]
    fitted, held = tmp_path / "fitted.txt", tmp_path / "held.txt"
    fitted.write_text("\n".join(ids[:4]))
    held.write_text("\n".join(ids[4:]))
    of = ["--profile", folder / "fit", "--profile-ids"]
    made = specadapt.json("fit", *of, fitted, "--clusters", 2, "--out", tmp_path / "table")
    assert made["profiled_prompts"] == sum(made["sizes"]) == 4
    judge = ["evaluate", "--routing", tmp_path / "table", *of]
    assert specadapt.json(*judge, held)["prompts"] <= 4
    assert "seen by the fit" in specadapt.refusal(*judge, fitted)
    held.write_text("strange")
    assert "--profile-ids" in specadapt.refusal(*judge, held)


def test_a_decision_is_explained(world, explain):
    folder, specadapt, _ = world
    figures = specadapt.json(*explain, folder / "routing")
    assert figures["method"] in figures["ranked"]
    assert sorted(figures["ranked"]) == ["naive", "ngram"]
    assert figures["reason"] == "preferred"
    assert "no routing table" in specadapt.refusal(*explain[:-1])


def test_a_table_with_a_regression_is_fitted_judged_and_explained(world, explain, tmp_path):
    folder, specadapt, _ = world
    made = specadapt.json(
        *["fit", "--profile", folder / "fit", "--clusters", 2, "--out", tmp_path],
        *["--predictor", "regression"],
    )
    table = load_table(tmp_path)
    assert (made["predictor"], made["fit_id"]) == ("regression", table.fit_id)
    assert table.regression.shape == (2, 128 + len(table.features))
    judged = specadapt.json("evaluate", "--routing", tmp_path, "--profile", folder / "held")
    assert judged["fit_id"] == made["fit_id"]
    explained = specadapt.json(*explain, tmp_path)
    assert set(explained["deviation"]) == {"naive", "ngram"}
    assert explained["deviation"]["naive"] == 0.0
    assert "log acceptance" in specadapt(*explain, tmp_path).stdout
    plain = specadapt.json(*explain, folder / "routing")
    assert plain["deviation"] == {}


def test_an_exported_encoder_is_refused_for_the_table_of_another(world, tmp_path, monkeypatch):
    folder, specadapt, _ = world
    figures = specadapt.json("export-encoder", "--out", tmp_path)
    assert (figures["dimension"], figures["path"]) == (384, str(tmp_path))
    monkeypatch.setenv("SPECADAPT_ENCODER", str(tmp_path))
    judged = ["evaluate", "--routing", folder / "routing", "--profile", folder / "held"]
    refused = specadapt.refusal(*judged)
    assert "fitted with encoder static-minilm (128 dimensions" in refused
    assert "all-MiniLM-L6-v2 (384 dimensions" in refused


def test_tune_fits_a_table_and_says_what_it_gains(world, tmp_path):
    folder, specadapt, bundle = world
    file = tmp_path / "prompts.jsonl"
    rows = [{"prompt": f"Repeat the line number {i}: {'la ' * (i % 5)}"} for i in range(36)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = ["tune", bundle.path, "--config", folder / "config.yaml", "--prompts", file, "--out"]
    figures = specadapt.json(*asked, tmp_path)
    assert figures["prompts"] <= 9
    assert len(figures["assignment"]) == 2
    low, high = figures["routed_over_best_single_ci95"]
    assert low <= figures["routed_over_best_single"] <= high
    assert load_table(tmp_path / "routing").features
    few = specadapt.refusal(*asked, tmp_path / "few", "--limit", 5)
    assert "--prompts: 5 are too few" in few
