"""A real service's load test, to be simulated request by request and compared."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ops.cli.boundary import InputError
from ops.load.policies import ONLY, ROUTED
from ops.simulate.experiment import Experiment
from ops.simulate.runs import Load


@dataclass(frozen=True)
class Served:
    """What a load test asked, of which policy, and its figures by the simulation's names."""

    policy: str
    load: Load
    figures: dict[str, float]


def read_served(file: Path, experiment: Experiment) -> Served:
    """A `specadapt loadtest --json` of prompts that the experiment's traces have; a model's name
    with a method in it pins that.

    Raises InputError for another file, requests that were not answered, prompts that were not
    traced, and another temperature or limit of tokens.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        given, timeline = found["settings"], found["timeline"]
        asked = [(float(one["due"]), str(one["prompt"])) for one in timeline]
        latency, rate = found["latency_s"], float(found["tokens_per_s"])
        model, unanswered = str(given["model"]), found["requests"] - found["answered"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"--served: {file} is no JSON of `specadapt loadtest`") from error
    for name in ("temperature", "max_tokens"):
        if given.get(name) != experiment.settings[name]:
            raise InputError(
                f"--served: {name} was {given.get(name)} there and is {experiment.settings[name]} "
                "here"
            )
    if unanswered:
        raise InputError(f"--served: {unanswered} requests of {file} were not answered")
    numbers = {prompt: i for i, prompt in enumerate(experiment.world.workload.ids)}
    if unknown := sorted({prompt for _, prompt in asked if prompt not in numbers}):
        raise InputError(
            f"--served: {len(unknown)} of its prompts are not in --traces, such as {unknown[0]}: "
            "trace the prompts that were asked"
        )
    asked.sort()
    method = model.partition(":")[2]
    return Served(
        f"{ONLY}{method}" if method else ROUTED,
        Load(np.asarray([due for due, _ in asked]), np.asarray([numbers[p] for _, p in asked])),
        {
            "tokens_per_s": rate,
            "latency_mean_s": float(latency["mean"]),
            "latency_p95_s": float(latency["p95"]),
        },
    )


def compared(served: Served, simulated: dict[str, Any]) -> dict[str, dict[str, float]]:
    """By figure what was served, what is simulated, and the latter over the former."""
    return {
        name: {"served": real, "simulated": simulated[name], "ratio": simulated[name] / real}
        for name, real in served.figures.items()
    }
