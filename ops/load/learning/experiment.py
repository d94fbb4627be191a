"""One scenario of `bench learning` from its table to its figures."""

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ops.harness.boundary import InputError
from ops.harness.own_service import own_service
from ops.harness.settings import ServiceFlags
from ops.load.experiment import Experiment
from ops.load.learning.report import figures_of
from ops.load.learning.runs import Phase, run_phases
from ops.load.learning.scenarios import (
    SLOWER,
    Prompts,
    busiest,
    killed,
    new_kind,
    slower,
    steady,
    table_without,
)
from ops.load.policies import UNLOADED, Question, static_table
from ops.load.served import over_http, served_config
from router.embed import Encoder
from router.fit.profile import Profile
from router.table import save_table

PHASES = {"steady": 2, "slower": 3, "killed": 3, "new_kind": 3}
"""Number of phases of `pairs` pairs each, by scenario."""


@dataclass(frozen=True)
class Plan:
    """What all scenarios share.

    profile: the answers to replay. pairs: per phase. share: load, of the capacity. new: domains
    that the table of new_kind, fitted on the profile `fitted_on`, has not seen.
    """

    given: ServiceFlags
    profile: Path
    replicas: int
    temperature: float
    pairs: int
    share: float
    new: Sequence[str]
    fitted_on: Path | None
    clusters: int
    seed: int


def run_scenario(
    plan: Plan, name: str, advance: Callable[[], None]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a scenario's figures and settings; call `advance` for each pair."""
    with _table(plan, name) as folder:
        given = replace(plan.given, routing=folder)
        loaded = Experiment.load(given, plan.profile, plan.replicas, plan.temperature)
        experiment = over_http(loaded)
        calm = static_table(experiment.table, experiment.config.router)

        def static(question: Question) -> str:
            return calm(question, UNLOADED)[0]

        phases, about = _phases(plan, name, experiment, static)
        # every pair is two requests
        pairs_per_s = plan.share * experiment.capacity / 2.0
        methods = experiment.table.methods
        config = served_config(
            experiment.config, methods, plan.replicas, "per_method", plan.profile
        )
        with own_service(config) as service:
            run = asyncio.run(run_phases(service, phases, static, pairs_per_s, plan.seed, advance))
    about |= {"pairs_per_s": pairs_per_s, "fit_id": experiment.table.fit_id}
    return figures_of(run, about, plan.seed), experiment.settings()


def _phases(
    plan: Plan, name: str, experiment: Experiment, static: Callable[[Question], str]
) -> tuple[list[Phase], dict[str, Any]]:
    rng = np.random.default_rng((plan.seed, 5))
    domains = {p.token_ids: p.domain for p in Profile.load(plan.profile).prompts}
    questions = experiment.questions
    prompts = Prompts(questions, [domains[q.token_ids] for q in questions])
    method = busiest(prompts, static)
    if name == "slower":
        about = {"method": method, "factor": SLOWER}
        return slower(prompts, method, plan.pairs, rng), about
    if name == "killed":
        return killed(prompts, method, plan.pairs, rng), {"method": method}
    if name == "new_kind":
        return new_kind(prompts, plan.new, plan.pairs, rng), {"new": list(plan.new)}
    budget = experiment.config.router.exploration
    return steady(prompts, plan.pairs, rng), {"exploration": budget}


@contextmanager
def _table(plan: Plan, name: str) -> Iterator[Path | None]:
    """The folder of the scenario's table; None leaves it to the configuration."""
    if name != "new_kind":
        yield plan.given.routing
        return
    if plan.fitted_on is None:
        raise InputError("--fitted-on: the scenario new_kind needs a profile to fit a table on")
    router = plan.given.config.router
    encoder = Encoder(router.encoder, router.encoder_threads)
    measured = Profile.load(plan.fitted_on)
    made = table_without(measured, plan.new, encoder, plan.clusters, plan.seed)
    with tempfile.TemporaryDirectory(prefix="specadapt-table-") as folder:
        save_table(made, Path(folder))
        yield Path(folder)
