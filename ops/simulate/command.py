"""`specadapt simulate`: the service's own router over virtual replicas, in simulated time."""

from pathlib import Path
from typing import Annotated

import typer

from ops.common import flags
from ops.common.output import emit, progress, table


def simulate(
    world: Annotated[
        Path | None,
        typer.Option(
            "--world",
            metavar="FILE",
            help="what differs from the routing table, as YAML  [default: nothing]",
        ),
    ] = None,
    routing: Annotated[
        Path | None,
        typer.Option(
            "--routing",
            metavar="DIR",
            help="folder of a routing table whose numbers replace the world's base",
        ),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(
            "--replicas",
            min=1,
            max=1000,
            metavar="N",
            help="replicas of each method  [default: the world's, 1]",
        ),
    ] = None,
    requests: Annotated[
        int, typer.Option("--requests", min=1, max=10**6, metavar="N", help="number of requests")
    ] = 400,
    ingresses: Annotated[
        int | None,
        typer.Option(
            "--ingresses",
            min=1,
            max=1000,
            metavar="N",
            help="number of ingresses  [default: the world's, 1]",
        ),
    ] = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Serve requests through the service's router while something differs from its table.

    Replicas and clients are simulated; the router, its learning and its failovers are the
    service's own. `excess` is how much longer the chosen methods take than the best ones.

    Example: `specadapt simulate --world slow.yaml --requests 600 --json -`
    """
    import logging

    from ops.simulate.run import simulate as run
    from ops.simulate.tables import base_of
    from ops.simulate.world import check, read_base, read_world
    from router.table import load_table

    found = read_world(world)
    given = {"replicas": replicas, "ingresses": ingresses}
    found = found.model_copy(update={k: v for k, v in given.items() if v is not None})
    base = read_base(found.base) if routing is None else base_of(load_table(routing))
    check(found, base)
    logging.getLogger("deployments").setLevel(logging.ERROR)  # methods may fail in a world
    with progress() as bar:
        task = bar.add_task("requests", total=requests)
        figures = run(found, base, requests, seed, lambda: bar.advance(task))
    shares, reasons = figures["shares"], figures["reasons"]
    single = [[name, value] for name, value in figures.items() if not isinstance(value, dict)]
    emit(
        figures,
        lambda: [
            table("Simulated, not measured", ["figure", "value"], single),
            table("Choices", ["method", "share"], [[*one] for one in shares.items()]),
            table("Reasons", ["reason", "share"], [[*one] for one in reasons.items()]),
        ],
        json,
    )
