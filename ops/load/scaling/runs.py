"""The runs behind `bench scaling`: one policy after the other under the same arrivals."""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from ray import serve

from deployments.app import INGRESS
from deployments.run import APPLICATION
from ops.harness.chat_client import model_name
from ops.harness.own_service import OwnService, own_service
from ops.harness.prompts import Prompt
from ops.load.client import UNCUT, client, until_quiet
from ops.load.loadtest.figures import Answered
from ops.load.loadtest.runs import drive
from ops.load.policies import Question
from ops.load.runs import Load
from ops.load.scaling.figures import Count
from ops.load.scaling.policies import FIXED, builder, scaled
from schemas import AppConfig

LOOK_SECONDS = 0.5
REPORT_SECONDS = 2.0
"""Interval of metric reports to Ray Serve's controller: Ray's ten seconds in compressed time."""
REPORT_VARIABLES = (
    "RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S",
    "RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S",
)
WARM_UP = 2
SETTLE_SECONDS = 300.0


@dataclass
class Run:
    """What a policy's run gave. seconds: until the last answer's end."""

    answers: Sequence[Answered] = ()
    seconds: float = 0.0
    counts: list[Count] = field(default_factory=list)


def run_policy(
    config: AppConfig, policy: str, gpus: int, load: Load, advance: Callable[[], None]
) -> Run:
    """Run a policy on a service of its own; call `advance` for each answer."""
    for variable in REPORT_VARIABLES:  # before Ray starts, whose processes inherit them
        os.environ[variable] = str(REPORT_SECONDS)
    deployments = 1 if config.layout == "shared" else len(config.methods)
    own = scaled(config, policy, len(config.methods), gpus)
    with own_service(own, builder(policy), gpus) as service:
        at_first = service.replicas if policy == FIXED else deployments
        return asyncio.run(_run(service, at_first, load, advance))


async def _run(service: OwnService, at_first: int, load: Load, advance: Callable[[], None]) -> Run:
    prompts = [_prompt(question) for question in load.asked]
    features = load.asked[0].features
    run = Run()
    async with client(service.url) as http:
        parameters = {
            "model": await model_name(http),
            "max_tokens": features.max_tokens,
            "temperature": features.temperature,
            **UNCUT,
        }
        await until_quiet(http, at_first)
        await drive(http, prompts[:WARM_UP], np.zeros(WARM_UP), parameters, lambda: None)
        await _until_exactly(at_first)
        await until_quiet(http, at_first)
        watching = asyncio.create_task(_watch(run))
        try:
            run.answers, run.seconds = await drive(
                http, prompts, load.arrivals, parameters, advance
            )
        finally:
            watching.cancel()
    return run


async def _until_exactly(replicas: int) -> None:
    """Wait until exactly this number of replicas runs and none starts or stops.

    Every policy so begins with the same number, whatever it did in the warm-up. Raises
    TimeoutError.
    """
    async with asyncio.timeout(SETTLE_SECONDS):
        while await asyncio.to_thread(_count, 0.0) != Count(0.0, replicas, 0, 0):
            await asyncio.sleep(LOOK_SECONDS)


async def _watch(run: Run) -> None:
    """Count the replicas while the run lasts, ingresses left out."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        run.counts.append(await asyncio.to_thread(_count, loop.time() - began))
        await asyncio.sleep(LOOK_SECONDS)


def _count(at: float) -> Count:
    states: Counter[str] = Counter()
    for name, deployment in serve.status().applications[APPLICATION].deployments.items():
        if name != INGRESS:
            states.update(deployment.replica_states)
    return Count(at, states.pop("RUNNING", 0), states.pop("STOPPING", 0), states.total())


def _prompt(question: Question) -> Prompt:
    return Prompt("", "", ({"role": "user", "content": question.text},))
