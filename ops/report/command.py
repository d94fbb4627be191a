"""`specadapt report`: measured and published figures as one HTML file and PNGs."""

from pathlib import Path
from typing import Annotated

import typer

from ops.harness import flags
from ops.harness.boundary import InputError
from ops.harness.output import emit


def report(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="output folder; the page is report.html")
    ],
    profile: Annotated[
        Path | None, typer.Option("--profile", metavar="DIR", help="folder of `specadapt profile`")
    ] = None,
    traces: Annotated[
        Path | None,
        typer.Option(
            "--traces",
            metavar="DIR",
            help="folder of `specadapt trace` for the same prompts; adds acceptance",
        ),
    ] = None,
    from_paper: Annotated[
        bool, typer.Option("--from-paper", help="draw the paper's own numbers with the same code")
    ] = False,
    bundle: Annotated[
        Path | None,
        typer.Option(
            "--bundle", metavar="DIR", help="bundle of the profile; adds the memory of the models"
        ),
    ] = None,
    config: flags.Config = None,
    clusters: Annotated[int, typer.Option("--clusters", min=2, help="number of clusters")] = 10,
    temperature: flags.Temperature = 0.0,
    price: Annotated[
        float | None,
        typer.Option(
            "--price", min=0.0, metavar="P", help="price of this machine per hour; adds costs"
        ),
    ] = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Write a report: the paper's tables and figures from a profile, next to the paper's numbers.

    The page is one file without scripts that needs no network. Every chart is also a PNG and a
    table.

    Example: `specadapt report --profile runs/profile --traces runs/trace --out runs/report`
    """
    if from_paper == (profile is not None):
        raise InputError("--profile: name a profile, or use --from-paper")
    for flag, given in {"traces": traces, "bundle": bundle, "price": price}.items():
        if from_paper and given:
            raise InputError(f"--{flag}: has no effect with --from-paper; name a --profile")
    try:
        from ops.report.report import Sources, make_report
    except ImportError as error:
        raise InputError(f"a report needs `pip install 'specadapt[report]'`: {error}") from error

    sources = Sources(profile, traces, bundle, config, clusters, temperature, price, seed)
    made = make_report(sources, out)
    emit(made, lambda: [*made["summary"], *made["files"]], json)
