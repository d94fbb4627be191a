"""What `bench scaling` asks: recorded prompts at a trace's times, and the work that they are."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ops.harness.boundary import InputError
from ops.harness.settings import ServiceFlags
from ops.load.arrivals import Floats, excerpt
from ops.load.capacity import share
from ops.load.experiment import Experiment
from ops.load.policies import Question
from ops.load.runs import Load
from ops.load.served import over_http, served_config
from schemas import AppConfig
from workers.replay_engine.engine import rows_of


@dataclass(frozen=True)
class Arrivals:
    """A part of a recorded trace: `seconds` of it, `speed` times faster (None: all of it)."""

    trace: Path
    seconds: float
    speed: float | None


@dataclass(frozen=True)
class Asked:
    """The requests of every policy. work: each request's seconds [n] of a full replica."""

    config: AppConfig
    load: Load
    work: Floats
    settings: dict[str, Any]


def asked(
    given: ServiceFlags,
    profile: Path,
    temperature: float,
    arrivals: Arrivals,
    demand: float,
    seed: int,
) -> Asked:
    """Draw requests whose work keeps `demand` replicas busy on average.

    Raises InputError, and ValueError if profile, bundle and table do not fit together.
    """
    found = over_http(Experiment.load(given, profile, 1, temperature))
    seconds = arrivals.seconds
    each = {question: _work(found, question) for question in found.questions}
    count = round(demand * seconds / float(np.mean(list(each.values()))))
    if count < 2:
        raise InputError(f"--demand: {demand:g} is {count} requests in this time; ask for more")
    load = found.load_of(excerpt(arrivals.trace, count, seconds, arrivals.speed, seed), seed)
    served = served_config(found.config, found.table.methods, 1, given.config.layout, profile)
    work = np.asarray([each[question] for question in load.asked])
    settings = found.settings()
    del settings["replicas"]  # they come and go
    return Asked(served, load, work, settings)


def _work(experiment: Experiment, question: Question) -> float:
    """Seconds of a full replica that the soonest method takes."""
    site = experiment.site
    methods = experiment.table.methods
    return min(share(site.recording, m, question, rows_of(site.engine)) for m in methods)
