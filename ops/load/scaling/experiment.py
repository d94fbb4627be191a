"""What `bench scaling` asks: recorded prompts at a trace's times, and the work that they are."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ops.harness.boundary import InputError
from ops.load.arrivals import Floats, excerpt
from ops.load.capacity import share
from ops.load.experiment import Experiment
from ops.load.policies import Question
from ops.load.runs import Load
from ops.load.served import over_http, served_config
from schemas import AppConfig
from workers.replay_engine.engine import rows_of


@dataclass(frozen=True)
class Asked:
    """The same for every policy. work: each request's seconds [n] of a full replica."""

    config: AppConfig
    load: Load
    work: Floats
    settings: dict[str, Any]


def asked(
    config: AppConfig,
    profile: Path,
    bundle: Path | None,
    routing: Path | None,
    methods: str | None,
    temperature: float,
    trace: Path,
    seconds: float,
    speed: float | None,
    demand: float,
    seed: int,
) -> Asked:
    """Requests whose work is `demand` replicas' on the mean over so many `seconds`.

    Raises InputError, and ValueError where profile, bundle and table do not fit together.
    """
    found = over_http(Experiment.load(config, profile, bundle, routing, methods, 1, temperature))
    each = {question: _work(found, question) for question in found.questions}
    count = round(demand * seconds / float(np.mean(list(each.values()))))
    if count < 2:
        raise InputError(f"--demand: {demand:g} is {count} requests in this time; ask for more")
    load = found.load_of(excerpt(trace, count, seconds, speed, seed), seed)
    served = served_config(found.config, found.table.methods, 1, config.layout, profile)
    work = np.asarray([each[question] for question in load.asked])
    settings = found.settings()
    del settings["replicas"]  # they come and go
    return Asked(served, load, work, settings)


def _work(experiment: Experiment, question: Question) -> float:
    """Seconds of a full replica that the soonest method takes."""
    site = experiment.site
    methods = experiment.table.methods
    return min(share(site.recording, m, question, rows_of(site.engine)) for m in methods)
