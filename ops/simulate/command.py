"""`specadapt simulate`: the service's own router over virtual replicas, in simulated time."""

import logging
from pathlib import Path
from typing import Annotated, Any

from ops.common import flags
from ops.common.output import emit, progress, table


def _count(name: str, help_text: str) -> Any:
    return flags.option(name, f"{help_text}  [default: the world's, 1]", "N", min=1, max=1000)


def simulate(
    world: Annotated[
        Path | None,
        flags.option(
            "--world", "what differs from the routing table, as YAML  [default: nothing]", "FILE"
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

    found, base = read_world(world, base_of(load_table(routing)) if routing else None)
    given = {"replicas": replicas, "ingresses": ingresses}
    found = found.model_copy(update={k: v for k, v in given.items() if v is not None})
    logging.getLogger("deployments").setLevel(logging.ERROR)  # methods may fail in a world
    with progress() as bar:
        task = bar.add_task("requests", total=requests)
        figures, _ = run(found, base, requests, seed, lambda: bar.advance(task))
    plain = [(name, value) for name, value in figures.items() if name != "shares"]
    shown = {"Simulated, not measured": plain, "Shares": [*figures["shares"].items()]}
    emit(figures, lambda: [table(t, ["figure", "value"], rows) for t, rows in shown.items()], json)
