"""`specadapt bench plot`: figures of `bench decode` as pictures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ops.common import flags
from ops.common.boundary import InputError

Run = Mapping[str, Any]
"""What `bench decode --json` wrote."""


def bench_plot(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="what `bench decode --json` wrote")
    ],
    out: Annotated[Path, flags.option("--out", "folder of the pictures", "DIR")],
) -> None:
    """Draw the speedup over plain decoding by kind of prompt, from the run with the fewest requests
    at once, and by the number of requests at once, from all runs.

    Example: `specadapt bench plot one.json four.json --out docs/results/plots`
    """
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    runs = sorted(map(read, files), key=lambda run: run["settings"]["concurrency"])
    machines = {run["settings"]["machine"] for run in runs}
    if len(machines) > 1:
        raise InputError(f"FILE: runs of one machine are comparable, not of {sorted(machines)}")
    # The same figures give the same file.
    rcParams.update({"svg.hashsalt": "specadapt", "svg.fonttype": "none"})
    out.mkdir(parents=True, exist_ok=True)
    for name, draw in {"by_prompt": by_prompt, "by_load": by_load}.items():
        figure = Figure(figsize=(8, 3.6), layout="constrained")
        axes = figure.subplots()
        draw(axes, runs)
        axes.axhline(1.0, color="grey", linewidth=1)
        axes.set_ylabel("speedup over plain decoding")
        figure.legend(loc="outside right upper")
        figure.savefig(file := out / f"{name}.svg", metadata={"Date": None})
        typer.echo(file)


def read(file: Path) -> Run:
    """Return a run. Raises InputError for another file."""
    from schemas.json_files import read_json

    run = read_json(file)
    if not isinstance(run, dict) or not {"methods", "settings"} <= run.keys():
        raise InputError(f"{file}: not the figures of `bench decode`")
    return run


def by_prompt(axes: Any, runs: Sequence[Run]) -> None:
    """Draw each method's speedup in each domain as bars."""
    methods = {name: one["by_domain"] for name, one in runs[0]["methods"].items()}
    baseline = runs[0]["settings"]["baseline"]
    domains = sorted(methods[baseline])
    drawn = [name for name in methods if name != baseline]
    for at, name in enumerate(drawn):
        places = [i + 0.8 * ((at + 0.5) / len(drawn) - 0.5) for i in range(len(domains))]
        speedups = [methods[name][domain]["speedup"] for domain in domains]
        axes.bar(places, speedups, 0.8 / len(drawn), label=name)
    axes.set_xticks(range(len(domains)), domains, fontsize=8)
    at_once = runs[0]["settings"]["concurrency"]
    axes.set_title(f"By kind of prompt, {at_once} at once, {_setup(runs[0])}", fontsize=10)


def by_load(axes: Any, runs: Sequence[Run]) -> None:
    """Draw each method's throughput over plain decoding's by the requests at once."""
    loads = [str(run["settings"]["concurrency"]) for run in runs]
    baseline = runs[0]["settings"]["baseline"]
    for name in runs[0]["methods"]:
        if name != baseline:
            throughputs = [
                run["methods"][name]["throughput_tokens_per_s"]
                / run["methods"][baseline]["throughput_tokens_per_s"]
                for run in runs
            ]
            axes.plot(loads, throughputs, marker="o", label=name)
    axes.set_xlabel("requests at once")
    axes.set_title(f"Throughput, {_setup(runs[0])}", fontsize=10)


def _setup(run: Run) -> str:
    settings = run["settings"]
    prompts = len(settings["prompts"]["ids"])
    kind = f"{settings['dtype']}, temperature {settings['temperature']:g}"
    return f"{Path(settings['bundle']).name}, {kind}, {prompts} prompts or more"
