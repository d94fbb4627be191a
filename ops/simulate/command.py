"""`specadapt simulate`: the service's own router over virtual replicas, in simulated time."""

import logging
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

from ops.common import flags
from ops.common.boundary import InputError
from ops.common.output import emit, progress, table

SEEDS = 3
"""Runs of each world of a folder."""


def _count(name: str, help_text: str) -> Any:
    return flags.option(name, f"{help_text}  [default: the world's, 1]", "N", min=1, max=1000)


def simulate(  # noqa: PLR0913 - its parameters are flags
    world: Annotated[
        Path | None,
        flags.option(
            "--world",
            f"what differs from the routing table, as YAML, or a folder of such files, each of "
            f"which runs with {SEEDS} seeds  [default: nothing]",
            "PATH",
        ),
    ] = None,
    routing: Annotated[
        Path | None,
        flags.option(
            "--routing", "folder of a routing table whose numbers replace the world's base", "DIR"
        ),
    ] = None,
    replicas: Annotated[int | None, _count("--replicas", "replicas of each method")] = None,
    requests: Annotated[
        int, flags.option("--requests", "number of requests", "N", min=1, max=10**6)
    ] = 400,
    ingresses: Annotated[int | None, _count("--ingresses", "number of ingresses")] = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Serve requests through the service's router while something differs from its table.

    Replicas and clients are simulated; the router, its learning and its failovers are the
    service's own. `excess` is how much longer the chosen methods take than the best ones.

    Example: `specadapt simulate --world slow.yaml --requests 600 --json -`
    """
    from ops.simulate.run import simulate as run
    from ops.simulate.speeds import base_of
    from ops.simulate.world import read_world
    from router.table import load_table

    given = {"replicas": replicas, "ingresses": ingresses}
    if world is not None and world.is_dir():
        if routing is not None or any(given.values()):
            raise InputError("--routing, --replicas, --ingresses: give a world's file, no folder")
        rows = _compare(world, requests, seed)
        columns = ["world", "excess", "last quarter", "found after"]
        emit(rows, lambda: [table("Simulated, not measured", columns, [*map(_shown, rows)])], json)
        return
    found, base = read_world(world, base_of(load_table(routing)) if routing else None)
    found = found.model_copy(update={k: v for k, v in given.items() if v is not None})
    logging.getLogger("deployments").setLevel(logging.ERROR)  # methods may fail in a world
    with progress() as bar:
        task = bar.add_task("requests", total=requests)
        figures, _ = run(found, base, requests, seed, lambda: bar.advance(task))
    plain = [(name, value) for name, value in figures.items() if name != "shares"]
    shown = {"Simulated, not measured": plain, "Shares": [*figures["shares"].items()]}
    emit(figures, lambda: [table(t, ["figure", "value"], rows) for t, rows in shown.items()], json)


def _compare(folder: Path, requests: int, seed: int) -> list[dict[str, Any]]:
    """Return the mean figures of each world in a folder."""
    worlds = sorted(folder.glob("*.yaml"))
    if not worlds:
        raise InputError(f"--world {folder}: the folder has no *.yaml file")
    runs = list(product(worlds, [requests], range(seed, seed + SEEDS)))
    with get_context("spawn").Pool() as pool, progress() as bar:
        figures = list(bar.track(pool.imap(_figures, runs), len(runs), description="runs"))
    rows = []
    for i, world in enumerate(worlds):
        of_world = figures[SEEDS * i : SEEDS * (i + 1)]
        means = {k: mean(one[k] for one in of_world) for k in ("excess", "excess_last_quarter")}
        found = [one["requests_until_found"] for one in of_world]
        rows.append({"world": world.stem, **means, "requests_until_found": found})
    return rows


def _figures(of: tuple[Path, int, int]) -> dict[str, Any]:
    from ops.simulate.run import simulate as run
    from ops.simulate.world import read_world

    world, requests, seed = of
    logging.getLogger("deployments").setLevel(logging.ERROR)
    return run(*read_world(world), requests, seed)[0]


def _shown(row: dict[str, Any]) -> list[str]:
    found = ["never" if one is None else str(one) for one in row["requests_until_found"]]
    shares = [f"{row[name]:.2%}" for name in ("excess", "excess_last_quarter")]
    return [row["world"], *shares, ", ".join(found)]
