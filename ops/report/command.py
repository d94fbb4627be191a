"""`specadapt report`: the paper's tables and figures, measured, from a CSV file or published."""

from pathlib import Path
from typing import Annotated

from ops.common import flags
from ops.common.boundary import InputError
from ops.common.output import emit, table


def report(  # noqa: PLR0913 - its parameters are flags
    out: Annotated[Path, flags.option("--out", "folder for report.md and the figures", "DIR")],
    profile: Annotated[
        Path | None, flags.option("--profile", "folder of `specadapt profile`", "DIR")
    ] = None,
    speedups: Annotated[
        Path | None,
        flags.option(
            "--speedups", "CSV file with a column `cluster` and one column per method", "CSV"
        ),
    ] = None,
    from_paper: Annotated[
        bool, flags.option("--from-paper", "use the paper's published numbers")
    ] = False,
    config: flags.Config = None,
    clusters: Annotated[int, flags.option("--clusters", "number of clusters", min=2)] = 10,
    temperature: flags.Temperature = 0.0,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Write the paper's tables as Markdown and its figures as PNG files.

    The numbers come from a profile, from a CSV file of speedups by cluster, or from the paper.
    Each cluster gets its fastest method.

    Example: `specadapt report --profile runs/profile --out runs/report`
    """
    from ops.report.results import measured, published, tabulated, write

    if (profile is not None) + (speedups is not None) + from_paper != 1:
        raise InputError("--profile: give one of --profile, --speedups and --from-paper")
    if profile is not None:
        results = measured(profile, config, clusters, temperature, seed)
    else:
        results = published() if speedups is None else tabulated(speedups)
    files = [str(file) for file in write(results, out)]
    best, means = results.best_single, {name: results.means[name] for name in results.portfolio}
    figures = {
        "assignment": results.assignment,
        "harmonic_mean": means,
        "best_single": {"name": best, "speedup": means[best]},
        "routed": results.routed,
        "over_prompts": {name: values[0] for name, values in results.overall.items()},
        "by_k": {str(k): row for k, row in results.by_k.items()},
        "files": files,
    }
    rows = [*means.items(), ("routed", results.routed)]
    shown = [
        table("Harmonic means over clusters", ["method", "speedup"], rows),
        table("Assignment", ["cluster", "method"], [*enumerate(results.assignment)]),
    ]
    emit(figures, lambda: [*shown, *files], json)
