"""Load tests of a real service, to simulate request by request and compare."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from ops.harness.boundary import InputError
from ops.load.policies import ROUTED, Routed
from ops.simulate.experiment import Experiment
from ops.simulate.learning import Learning
from ops.simulate.outcomes import Outcomes
from ops.simulate.policies import PINNED, Fleet
from ops.simulate.runs import SERVICE_REPLICAS, Load
from ops.simulate.service import Service
from ops.simulate.world import World
from schemas.json_files import read_json

JUDGED = ("tokens_per_s", "latency_mean_s", "latency_p95_s")
WITHIN = 0.15


@dataclass(frozen=True)
class Served:
    """A load test: its requests, policy and figures.

    hops: for each answer with engine times, the client's seconds to the first text and to the end,
    minus the engine's.
    """

    policy: str
    load: Load
    figures: dict[str, float]
    hops: list[tuple[float, float]]


def read_served(file: Path, experiment: Experiment) -> Served:
    """Read a `specadapt loadtest --json`; see `served_of`. Raises InputError."""
    return served_of(read_json(file), experiment, str(file))


def served_of(found: dict[str, Any], experiment: Experiment, name: str) -> Served:
    """Return a load test's figures. A method in the model's name pins that method.

    name: of the load test, for messages. Raises InputError for figures of another command,
    unanswered requests, prompts that are not traced, and another temperature or token limit.
    """
    try:
        given, timeline = found["settings"], found["timeline"]
        asked = [(float(one["due"]), str(one["prompt"])) for one in timeline]
        figures = {
            "tokens_per_s": float(found["tokens_per_s"]),
            "latency_mean_s": float(found["latency_s"]["mean"]),
            "latency_p95_s": float(found["latency_s"]["p95"]),
            "ttft_mean_s": float(found["ttft_s"]["mean"]),
            "tpot_mean_s": float(found["tpot_s"]["mean"]),
        }
        hops = [_hop(one) for one in timeline if "engine" in one]
        model, unanswered = str(given["model"]), found["requests"] - found["answered"]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"--served: {name} was not written by `specadapt loadtest --json`"
        ) from error
    for flag in ("temperature", "max_tokens"):
        if given.get(flag) != experiment.settings[flag]:
            raise InputError(
                f"--served: {flag} was {given.get(flag)} there and is {experiment.settings[flag]} "
                "here"
            )
    if unanswered:
        raise InputError(f"--served: {unanswered} requests of {name} were not answered")
    numbers = {prompt: i for i, prompt in enumerate(experiment.world.workload.ids)}
    if unknown := sorted({prompt for _, prompt in asked if prompt not in numbers}):
        raise InputError(
            f"--served: {len(unknown)} of its prompts are not in --traces, such as {unknown[0]}: "
            "trace the prompts that were asked"
        )
    asked.sort()
    method = model.partition(":")[2]
    return Served(
        f"{PINNED}{method}" if method else ROUTED,
        Load(np.asarray([due for due, _ in asked]), np.asarray([numbers[p] for _, p in asked])),
        figures,
        hops,
    )


def _hop(answer: dict[str, Any]) -> tuple[float, float]:
    engine = answer["engine"]
    first = float(answer["ttft"]) - float(engine["engine_first_token_ms"]) / 1e3
    return first, float(answer["seconds"]) - float(engine["total_seconds"])


def compared(served: Served, simulated: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return, by figure, the served and the simulated value and their ratio."""
    return {
        name: {"served": real, "simulated": simulated[name], "ratio": simulated[name] / real}
        for name, real in served.figures.items()
    }


def within(found: dict[str, dict[str, float]]) -> bool:
    """Return whether all JUDGED figures are within WITHIN of the served ones."""
    return all(abs(found[name]["ratio"] - 1.0) <= WITHIN for name in JUDGED)


def in_turn(
    world: World, fleet: Fleet, methods: Sequence[str], tests: Sequence[Served], seed: int = 0
) -> list[Outcomes]:
    """Simulate load tests that one service answers in turn; routing learns from test to test.

    Returns each test's outcomes. Raises InputError for a fleet larger than one service.
    """
    layout, scales = fleet.layout(methods, ROUTED), fleet.scales(methods, ROUTED)
    if not scales and len(layout) > SERVICE_REPLICAS:
        raise InputError(
            f"--replicas: consecutive load tests need one service, of {SERVICE_REPLICAS} at most"
        )
    policy = Routed(world.table, world.router, seed)
    learning = None
    if world.flush_seconds is not None:
        learning = Learning(policy, world.router, world.flush_seconds)
    found = []
    for test in tests:
        policy.pinned = None if test.policy == ROUTED else test.policy.removeprefix(PINNED)
        service = Service(world, layout, policy, scales, learning)
        found.append(service.run(test.load.arrivals, test.load.prompts, seed))
        if learning is not None:
            learning.flush(0.0)
    return found


Figures = Mapping[str, float]


def rounds_compared(served: Sequence[Figures], simulated: Sequence[Figures]) -> dict[str, Any]:
    """Compare a load test's rounds as served and as simulated.

    Returns, by figure, both medians, their ratio, and `spread`: the largest served value over the
    smallest. `within` is whether the JUDGED ratios are within WITHIN of 1.
    """
    figures = {name: _compared(name, served, simulated) for name in served[0]}
    near = (abs(figures[name]["ratio"] - 1.0) <= WITHIN for name in JUDGED)
    return {"figures": figures, "within": all(near)}


def _compared(name: str, served: Sequence[Figures], simulated: Sequence[Figures]) -> dict[str, Any]:
    real, made = [one[name] for one in served], [one[name] for one in simulated]
    return {
        "served": median(real),
        "simulated": median(made),
        "ratio": median(made) / median(real),
        "spread": max(real) / min(real),
        "ratios": [b / a for a, b in zip(real, made, strict=True)],
    }
