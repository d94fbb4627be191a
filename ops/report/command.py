"""`specadapt report`: one HTML file and PNGs of what was measured, beside what was published."""

from pathlib import Path
from typing import Annotated

import typer

from ops.harness import flags
from ops.harness.boundary import InputError
from ops.harness.output import emit


def report(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="where report.html goes")],
    profile: Annotated[
        Path | None, typer.Option("--profile", metavar="DIR", help="of `specadapt profile`")
    ] = None,
    traces: Annotated[
        Path | None,
        typer.Option("--traces", metavar="DIR", help="of its prompts: acceptance and overlap"),
    ] = None,
    figures: Annotated[
        list[Path] | None,
        typer.Option(
            "--figures",
            metavar="FILE",
            help="JSON of bench bounds, router, stages, quality; repeatable",
        ),
    ] = None,
    from_paper: Annotated[
        bool, typer.Option("--from-paper", help="the paper's own numbers, drawn by the same code")
    ] = False,
    bundle: Annotated[
        Path | None,
        typer.Option("--bundle", metavar="DIR", help="the profile's: adds what models hold"),
    ] = None,
    config: flags.Config = None,
    clusters: Annotated[int, typer.Option("--clusters", min=2, help="how many")] = 10,
    temperature: flags.Temperature = 0.0,
    price: Annotated[
        float | None,
        typer.Option("--price", min=0.0, metavar="P", help="of this machine an hour: adds costs"),
    ] = None,
    static: Annotated[
        bool,
        typer.Option("--static", help="pictures and no script in the page: under 2 MB, not 6"),
    ] = False,
    mlflow: Annotated[
        str | None,
        typer.Option("--mlflow", metavar="URI", help="log figures and files to this MLflow too"),
    ] = None,
    wandb: Annotated[
        str | None,
        typer.Option("--wandb", metavar="PROJECT", help="and to this project of Weights & Biases"),
    ] = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Draw the paper's tables and figures from a profile, the paper's numbers beside them.

    The page is one file that needs no network; every chart is a PNG beside it and a table in it.

    Example: `specadapt report --profile runs/profile --traces runs/trace --out runs/report`
    """
    if from_paper == (profile is not None):
        raise InputError("--profile: name one to report on, or ask for --from-paper instead")
    for flag, given in {
        "traces": traces,
        "figures": figures,
        "bundle": bundle,
        "price": price,
    }.items():
        if from_paper and given:
            raise InputError(f"--{flag}: the paper's numbers have no use for it; name a --profile")
    try:
        from ops.report.report import Sources, make_report
        from ops.report.trackers import log_report
    except ImportError as error:
        raise InputError(f"a report needs `pip install 'specadapt[report]'`: {error}") from error

    sources = Sources(
        *(profile, traces, figures or (), bundle, config, clusters, temperature, price, seed)
    )
    made = make_report(sources, out, static)
    if mlflow is not None or wandb is not None:
        log_report(made, out, mlflow, wandb)
    emit(made, lambda: [*made["summary"], *made["files"]], json)
