"""`specadapt assign`: a table of speedups to an assignment, without measuring anything."""

from pathlib import Path
from typing import Annotated

import typer

from ops.harness.flags import Json, Methods
from ops.harness.output import emit, table


def assign(
    speedups: Annotated[
        Path,
        typer.Option(
            "--speedups",
            metavar="CSV",
            help="CSV file with a column `cluster` and one column per method",
        ),
    ],
    methods: Methods = None,
    json: Json = None,
) -> None:
    """Assign each cluster its fastest method, from a table of speedups.

    Example: `specadapt assign --speedups speedups.csv --methods draft_verify,ngram`
    """
    from ops.harness.settings import names
    from router.fit.speedup_table import assign_speedups, read_speedups

    columns, values = read_speedups(speedups, None if methods is None else names(methods))
    result = assign_speedups(columns, values)
    figures = {
        "assignment": list(result.assignment),
        "harmonic_mean": result.harmonic_mean,
        "best_single": {"name": result.best_single, "speedup": result.best_single_speedup},
        "routed": result.routed,
    }
    means = [[name, value] for name, value in result.harmonic_mean.items()]
    means.append(["routed", result.routed])
    chosen = [[cluster, name] for cluster, name in enumerate(result.assignment)]
    emit(
        figures,
        lambda: [
            table("Harmonic means over clusters", ["method", "speedup"], means),
            table("Assignment", ["cluster", "method"], chosen),
        ],
        json,
    )
