"""The runs behind `bench load --serve`: Ray Serve with replay engines, asked over HTTP.

Two applications, one after the other, with the same number of replicas: one with a deployment
per method, and one whose replicas host every method. There, requests pinned to one method are
this method on all replicas.
"""

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np
import yaml

from ops.harness.boundary import InputError
from ops.harness.chat_client import model_name
from ops.harness.running_service import running_service
from ops.load.capacity import share
from ops.load.client import Ask, client, drive, until_quiet
from ops.load.experiment import Experiment
from ops.load.policies import ONLY, RANDOM, ROUTED, STATIC, UNLOADED, static_table
from ops.load.runs import Load, Runs
from schemas import AppConfig, MethodDeployment
from workers.bundle import load_bundle
from workers.chat_template import encode_chat
from workers.replay_engine.engine import rows_of

ROUTED_SHARED = "routed_shared"
Advance = Callable[[], None]
Pins = Callable[[Load], Sequence[str | None]]
"""The method that each of a load's requests is pinned to; None leaves it to the service."""


def served_config(
    config: AppConfig, methods: Sequence[str], replicas: int, layout: str, recording: Path
) -> AppConfig:
    """Return an application's configuration with `replicas` replicas per method."""
    known = {m.name: m for m in config.methods}

    def scaled(resources: MethodDeployment, count: int) -> MethodDeployment:
        # a replica that replays computes next to nothing
        update = {"min_replicas": count, "max_replicas": count, "num_cpus": 0.0}
        return resources.model_copy(update=update)

    return config.model_copy(
        update={
            "layout": layout,
            "methods": tuple(
                scaled(known.get(m) or MethodDeployment(name=m), replicas) for m in methods
            ),
            "shared": scaled(config.shared, replicas * len(methods)),
            "engine": config.engine.model_copy(update={"replay": recording}),
        }
    )


def over_http(experiment: Experiment) -> Experiment:
    """Return the experiment with the prompts that a single user turn reproduces.

    Conversations are left out. Raises InputError if none is left.
    """
    tokenizer = load_bundle(experiment.config.bundle).tokenizer()

    def tokens(text: str) -> tuple[int, ...]:
        turn = [{"role": "user", "content": text}]
        return tuple(encode_chat(tokenizer, turn, add_generation_prompt=True))

    kept = tuple(q for q in experiment.questions if tokens(q.text) == q.token_ids)
    if not kept:
        raise InputError("--profile: no prompt is a single user turn, as HTTP clients send")
    return replace(experiment, questions=kept)


def best_alone(experiment: Experiment) -> list[str]:
    """The method that gets most done on full replicas, and the fastest one on idle ones."""
    site, questions = experiment.site, experiment.questions
    methods = experiment.table.methods

    def seconds(method: str, batch: int) -> float:
        return fmean(share(site.recording, method, q, batch) for q in questions)

    batches = (rows_of(site.engine), 1)
    best = [min(methods, key=lambda m: seconds(m, batch)) for batch in batches]
    return list(dict.fromkeys(best))


def policies_run(singles: Sequence[str]) -> int:
    """How many policies `served_runs` runs."""
    return 4 + len(singles)


def served_runs(
    experiment: Experiment,
    recording: Path,
    loads: Sequence[Load],
    singles: Sequence[str],
    seed: int,
    advance: Advance,
) -> list[Runs]:
    """Return every policy's outcomes, by load; call `advance` for each request.

    The service learns while it runs and keeps what it learned from load to load.
    """
    methods = experiment.table.methods
    replicas = len(experiment.site.layout) // len(methods)
    calm = static_table(experiment.table, experiment.config.router)
    rng = np.random.default_rng((seed, 3))
    layouts: Mapping[str, Mapping[str, Pins]] = {
        "per_method": {
            ROUTED: lambda load: [None] * len(load.asked),
            STATIC: lambda load: [calm(question, UNLOADED)[0] for question in load.asked],
            RANDOM: lambda load: list(rng.choice(methods, len(load.asked))),
        },
        "shared": {
            ROUTED_SHARED: lambda load: [None] * len(load.asked),
            **{f"{ONLY}{m}": partial(_pinned, m) for m in singles},
        },
    }
    found: list[Runs] = [{} for _ in loads]
    for layout, policies in layouts.items():
        config = served_config(experiment.config, methods, replicas, layout, recording)
        with replaying_service(config) as url:
            runs = _in_turn(url, replicas * len(methods), policies, loads, seed, advance)
            for at_load, more in zip(found, asyncio.run(runs), strict=True):
                at_load |= more
    return found


@contextmanager
def replaying_service(config: AppConfig) -> Iterator[str]:
    """The address of a service of this configuration."""
    with tempfile.TemporaryDirectory(prefix="specadapt-load-") as folder:
        file = Path(folder) / "load.yaml"
        file.write_text(yaml.safe_dump(config.model_dump(mode="json")), encoding="utf-8")
        with running_service(None, file, None) as url:
            yield url


async def _in_turn(
    url: str,
    replicas: int,
    policies: Mapping[str, Pins],
    loads: Sequence[Load],
    seed: int,
    advance: Advance,
) -> list[Runs]:
    """By load the policies' outcomes, in an order of its own, each on an idle service."""
    rng = np.random.default_rng((seed, 4))
    results: list[Runs] = []
    async with client(url) as service:
        model = await model_name(service)
        await until_quiet(service, replicas)
        warm = Load(
            loads[0].asked[: 2 * replicas], np.zeros(min(2 * replicas, len(loads[0].asked)))
        )
        for pins in policies.values():
            await drive(service, model, _asks(warm, pins), warm.arrivals, lambda: None)
        for load in loads:
            runs: Runs = {}
            for name in rng.permutation(list(policies)):
                await until_quiet(service, replicas)
                asks = _asks(load, policies[name])
                runs[str(name)] = await drive(service, model, asks, load.arrivals, advance)
            results.append({name: runs[name] for name in policies})
    return results


def _asks(load: Load, pins: Pins) -> list[Ask]:
    return [
        Ask(q, None if m is None else str(m)) for q, m in zip(load.asked, pins(load), strict=True)
    ]


def _pinned(method: str, load: Load) -> Sequence[str]:
    return [method] * len(load.asked)
