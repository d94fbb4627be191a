"""A report's figures and files, logged to MLflow or Weights & Biases by their own packages."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ops.harness.boundary import InputError
from ops.report.results import Results

RUN = "specadapt report"


def log_report(
    made: Mapping[str, Any], folder: Path, mlflow_uri: str | None, wandb_project: str | None
) -> None:
    """Log a report's folder to MLflow and Weights & Biases, where named.

    Raises InputError if a package is missing or cannot log; the folder stays unchanged.
    """
    results = Results.model_validate(made["results"])
    metrics = metrics_of(results)
    about = {"source": results.source, "baseline": results.baseline}
    if mlflow_uri is not None:
        log_to_mlflow(mlflow_uri, about, metrics, folder)
    if wandb_project is not None:
        log_to_wandb(wandb_project, about, metrics, folder)


def metrics_of(results: Results) -> dict[str, float]:
    """By name the figures that runs are compared by."""
    found = {f"speedup/{name}": value for name, value in results.overall.items()}
    found |= {f"tokens_per_s/{name}": rate.tokens_per_s for name, rate in results.rates.items()}
    for k, own in results.by_k.items():
        found[f"routed/{k}_clusters"] = own.routed
        if own.held_out is not None:
            found[f"held_out/{k}_clusters"] = own.held_out
    if results.oracle is not None:
        found["best_of_prompt"] = results.oracle.value
    return found


def log_to_mlflow(
    address: str, parameters: Mapping[str, Any], metrics: Mapping[str, float], folder: Path
) -> None:
    """A run with the folder's files at a tracking server, or in a folder, of MLflow's."""
    try:
        import mlflow
    except ImportError as error:
        raise InputError(f"--mlflow needs `pip install 'specadapt[mlflow]'`: {error}") from error
    try:
        mlflow.set_tracking_uri(address)
        with mlflow.start_run(run_name=RUN):
            mlflow.log_params(dict(parameters))
            mlflow.log_metrics(dict(metrics))
            mlflow.log_artifacts(str(folder))
    except ImportError as error:
        # mlflow-skinny has what talks to a server, and none of what databases need.
        raise InputError(
            f"--mlflow: {address} needs more of MLflow: `pip install mlflow`: {error}"
        ) from error
    except mlflow.exceptions.MlflowException as error:
        raise InputError(f"--mlflow: {address}: {error}") from error


def log_to_wandb(
    project: str, parameters: Mapping[str, Any], metrics: Mapping[str, float], folder: Path
) -> None:
    """A run with the folder's files in a project; WANDB_MODE=offline keeps it here."""
    try:
        import wandb
    except ImportError as error:
        raise InputError(f"--wandb needs `pip install 'specadapt[wandb]'`: {error}") from error
    try:
        with wandb.init(project=project, name=RUN, config=dict(parameters)) as run:
            run.log(dict(metrics))
            files = wandb.Artifact("report", type="report")
            files.add_dir(str(folder))
            run.log_artifact(files)
    except wandb.errors.Error as error:
        raise InputError(
            f"--wandb: {project}: {error} WANDB_MODE=offline keeps the run here."
        ) from error
