"""`specadapt bench simulated`: compare a simulation with the service it models."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group

from ops.harness import flags
from ops.harness.output import emit, progress, table

if TYPE_CHECKING:
    from ops.simulate.check_rounds import Found, LoadTest
    from ops.simulate.experiment import Experiment


def bench_simulated(
    traces: Annotated[
        Path,
        typer.Option(
            "--traces", metavar="DIR", help="folder of `specadapt trace` with all prompts"
        ),
    ],
    routed_rates: Annotated[
        str,
        typer.Option(
            "--rates", metavar="A,B", help="rates of the routed load tests, in requests per second"
        ),
    ],
    method: Annotated[
        str, typer.Option("--method", metavar="M", help="method that the pinned load tests use")
    ],
    pinned_rates: Annotated[
        str,
        typer.Option(
            "--method-rates",
            metavar="A,B",
            help="rates of the pinned load tests, in requests per second",
        ),
    ],
    tests: Annotated[
        Path,
        typer.Option(
            "--tests",
            metavar="DIR",
            help="folder for load tests, one file per round; existing ones are not repeated",
        ),
    ],
    config: flags.Config = None,
    bundle: flags.Bundle = None,
    routing: flags.Routing = None,
    prompts: flags.Prompts = None,
    seconds: Annotated[
        float,
        typer.Option("--seconds", min=1.0, metavar="S", help="duration of a load test in seconds"),
    ] = 60.0,
    repeats: Annotated[
        int, typer.Option("--repeats", min=1, metavar="N", help="number of rounds")
    ] = 3,
    max_tokens: flags.MaxTokens = flags.DEFAULT_MAX_TOKENS,
    temperature: flags.Temperature = 0.0,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Compare a simulation with a real service under the same requests.

    Starts the service and runs load tests, in another order on a new service in each round. Two
    more load tests, halfway between the two highest rates, calibrate the simulation. Compares the
    medians of the rounds.

    Example: `specadapt bench simulated --traces T --routing R --rates 0.9,1.5,2.2 --method eagle3
    --method-rates 0.8,1.2,1.7 --tests runs/loads`
    """
    from ops.harness.boundary import InputError
    from ops.harness.machine import describe_machine
    from ops.harness.prompts import fingerprint, select
    from ops.harness.settings import ServiceFlags, load_config, resolve
    from ops.simulate.check_rounds import Asking, answered, planned
    from ops.simulate.costs import MEASURED
    from ops.simulate.experiment import Scenario, load_experiment

    settings = load_config(config)
    folder = resolve(settings, bundle).bundle
    where = routing or settings.router.routing or folder / "routing"
    experiment = load_experiment(
        ServiceFlags(settings, bundle, where),
        traces,
        MEASURED,
        Scenario(temperature, max_tokens, seed, learn=True),
    )
    if method not in experiment.methods:
        raise InputError(
            f"--method: {method} is unknown; known methods: {', '.join(experiment.methods)}"
        )
    chosen = select(prompts)
    if max_tokens != (traced := experiment.settings["max_tokens"]):
        raise InputError(
            f"--max-tokens: the traces have answers of up to {traced}, not {max_tokens}"
        )
    if unknown := {prompt.id for prompt in chosen} - set(experiment.world.workload.ids):
        raise InputError(
            f"--traces: {len(unknown)} of the prompts to be asked were not traced, such as "
            f"{min(unknown)}"
        )
    routed, pinned = _rates(routed_rates, "--rates"), _rates(pinned_rates, "--method-rates")
    loads = planned(method, routed, pinned, seconds, seed)
    router = settings.router.model_copy(update={"routing": where.absolute()})
    served = settings.model_copy(update={"bundle": folder, "router": router})
    asking = Asking(served, chosen, max_tokens, temperature)
    with progress() as bar:
        task = bar.add_task("requests", total=repeats * sum(load.requests for load in loads))
        rounds = [
            answered(asking, loads, n, tests / f"{n}.json", lambda done: bar.advance(task, done))
            for n in range(repeats)
        ]
    figures = _judged(experiment, loads, rounds)
    figures["settings"] = {
        **describe_machine(),
        **experiment.settings,
        "overhead": None,
        "seconds": seconds,
        "repeats": repeats,
        "prompts": {"sha256": fingerprint(chosen), "count": len(chosen)},
    }
    emit(figures, lambda: _tables(figures), json)


def _rates(text: str, flag: str) -> list[float]:
    from ops.harness.numbers import numbers

    return numbers(text, flag, "requests a second, above 0", lambda one: 0.0 < one < float("inf"))


def _judged(
    experiment: "Experiment",
    loads: list["LoadTest"],
    rounds: list[list[tuple["LoadTest", "Found"]]],
) -> dict[str, Any]:
    """Compare every load test with its simulation under the calibrated overhead."""
    from ops.simulate.calibration import calibrated, simulated
    from ops.simulate.outcomes import Objectives
    from ops.simulate.served import rounds_compared, served_of

    fleet = experiment.fleet
    asked = [
        [(test, served_of(found, experiment, test.name)) for test, found in one] for one in rounds
    ]
    telling = [[served for test, served in one if test.calibrates] for one in asked]
    overhead = calibrated(experiment, fleet, telling).overhead
    real: dict[str, list[dict[str, float]]] = {load.name: [] for load in loads}
    made: dict[str, list[dict[str, float]]] = {load.name: [] for load in loads}
    for number, one in enumerate(asked):
        together = simulated(experiment, fleet, [s for _, s in one], overhead, number)
        for (test, served), outcomes in zip(one, together, strict=True):
            real[test.name].append(served.figures)
            made[test.name].append(outcomes.figures(experiment.methods, Objectives()))
    found = {
        load.name: {
            **rounds_compared(real[load.name], made[load.name]),
            "rate": load.rate,
            "requests": load.requests,
            "calibrates": load.calibrates,
        }
        for load in loads
    }
    judged = [one["within"] for one in found.values() if not one["calibrates"]]
    return {
        "within": sum(judged),
        "judged": len(judged),
        "overhead": overhead.model_dump(),
        "loads": found,
    }


def _tables(figures: dict[str, Any]) -> Iterable[Group | str]:
    from ops.simulate.served import JUDGED, WITHIN

    yield table(
        "Served, and simulated over served (medians of rounds)",
        ["", *(f"{name}{what}" for name in JUDGED for what in ("", ", ratio", ", spread")), "near"],
        [
            [
                name,
                *(
                    one["figures"][figure][key]
                    for figure in JUDGED
                    for key in ("served", "ratio", "spread")
                ),
                "calibrates" if one["calibrates"] else "yes" if one["within"] else "no",
            ]
            for name, one in figures["loads"].items()
        ],
    )
    yield table("What the service adds", ["", ""], [[k, v] for k, v in figures["overhead"].items()])
    yield f"{figures['within']} of {figures['judged']} load tests are within {WITHIN:.0%}."
