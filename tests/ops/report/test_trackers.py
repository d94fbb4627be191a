"""What a report logs to MLflow and Weights & Biases: to files of theirs, no server."""

import sys

import pytest

from ops.harness.boundary import InputError
from ops.report.results import published
from ops.report.trackers import log_report, metrics_of


@pytest.fixture
def made(tmp_path):
    """A report as the command makes it, and its folder."""
    folder = tmp_path / "report"
    folder.mkdir()
    (folder / "report.html").write_text("<!doctype html>")
    return {"results": published().model_dump(mode="json")}, folder


def test_metrics_are_the_results():
    metrics = metrics_of(published())
    assert metrics["speedup/draft_verify"] == 1.52
    assert metrics["routed/10_clusters"] == 1.6576
    assert "held_out/10_clusters" not in metrics


@pytest.mark.parametrize(("package", "at"), [("mlflow", 0), ("wandb", 1)])
def test_a_missing_package_is_named_with_its_extra(monkeypatch, made, package, at):
    monkeypatch.setitem(sys.modules, package, None)
    wanted = [None, None]
    wanted[at] = "x"
    with pytest.raises(ValueError, match=rf"--{package} needs `pip install 'specadapt\[{package}"):
        log_report(*made, *wanted)


def test_a_run_of_mlflow_has_figures_and_files(monkeypatch, made, tmp_path):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    address = (tmp_path / "runs").as_uri()
    log_report(*made, address, None)
    [run] = mlflow.MlflowClient(address).search_runs(["0"])
    assert run.data.metrics == metrics_of(published())
    assert run.data.params["baseline"] == published().baseline
    assert list((tmp_path / "runs").rglob("artifacts/report.html"))


def test_a_run_of_wandb_is_kept_here_when_offline(monkeypatch, made, tmp_path):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    log_report(*made, None, "specadapt")
    # Its own process writes the file, and is done with it when it ends, as at a command's end.
    wandb.teardown()
    [written] = tmp_path.glob("wandb/offline-run-*/*.wandb")
    assert b"speedup/draft_verify" in written.read_bytes()


def test_where_mlflow_cannot_log_is_one_line(monkeypatch, made, tmp_path):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "false")
    with pytest.raises(InputError, match="--mlflow: file:"):
        log_report(*made, (tmp_path / "runs").as_uri(), None)


def test_where_wandb_cannot_log_is_one_line(monkeypatch, made):
    wandb = pytest.importorskip("wandb")

    def without_key(**_):
        raise wandb.errors.UsageError("No API key configured.")

    monkeypatch.setattr(wandb, "init", without_key)
    with pytest.raises(InputError, match=r"--wandb: specadapt: No API key .* WANDB_MODE=offline"):
        log_report(*made, None, "specadapt")
