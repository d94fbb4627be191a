"""What `specadapt simulate` and `plan` run on: a configuration's router, prompts and step costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ops.harness.boundary import InputError
from ops.harness.embedding import embed
from ops.harness.settings import ServiceFlags, resolve
from ops.load.arrivals import Floats
from ops.load.capacity import most_requests_per_s
from ops.load.policies import ONLY, ROUTED
from ops.simulate.costs import (
    MEASURED,
    PUBLISHED,
    MeasuredCosts,
    PublishedCosts,
    StepCosts,
    retimed_by,
)
from ops.simulate.overhead import NOTHING, Overhead, ServedCosts
from ops.simulate.policies import Fleet
from ops.simulate.workload import Workload, table_workload, traced_workload
from ops.simulate.world import World
from ops.tables.trace_store import read_meta, read_rows
from router import cluster
from router.embed import Encoder
from router.prompt import predictions
from router.table import load_table, restrict
from schemas import AppConfig, RoutingTable
from workers.replay_engine.engine import rows_of


@dataclass(frozen=True)
class Experiment:
    """A simulated service and the settings that its figures depend on."""

    config: AppConfig
    world: World
    settings: dict[str, Any]
    costs: StepCosts
    """The world's without its service's overhead."""

    @property
    def methods(self) -> tuple[str, ...]:
        return self.world.table.methods

    @property
    def fleet(self) -> Fleet:
        """The configured replicas."""
        return Fleet.configured(self.config, self.methods)

    def seconds(self, batch: int) -> dict[str, Floats]:
        """Return, by method, each prompt's mean seconds of a replica [n], at this batch size."""
        world, workload = self.world, self.world.workload
        found = {}
        for m, name in enumerate(self.methods):
            counts = [batch * (other == m) for other in range(len(self.methods))]
            each = np.empty(len(workload.questions))
            for i, (question, ways) in enumerate(
                zip(workload.questions, workload.paths, strict=True)
            ):
                prompt = question.features.prompt_tokens
                decode = [
                    path.steps
                    * world.costs.step(
                        counts, batch * (prompt + path.tokens / 2.0), batch * path.width
                    )
                    for path in ways[m]
                ]
                each[i] = world.costs.prefill(m, prompt) + sum(decode) / len(decode) / batch
            found[name] = each
        return found

    def limit(self, fleet: Fleet) -> dict[str, float]:
        """Return bounds that no policy exceeds.

        requests_per_s: with full batches and every prompt where it costs least. latency_mean_s: if
        each request has an idle replica and its fastest method.
        """
        weights = self.world.workload.weights
        full = self.seconds(rows_of(self.world.engine))
        alone = np.min(list(self.seconds(1).values()), axis=0)
        layout = fleet.layout(self.methods, ROUTED)
        return {
            "requests_per_s": most_requests_per_s(layout, full, weights),
            "latency_mean_s": float(alone @ weights),
        }

    def shares(self) -> tuple[float, ...]:
        """Return by method its share of the work if every prompt goes where it costs least."""
        full = np.stack(list(self.seconds(rows_of(self.world.engine)).values()))
        cheapest, work = full.argmin(axis=0), self.world.workload.weights * full.min(axis=0)
        by_method = np.bincount(cheapest, work, len(full))
        return tuple((by_method / by_method.sum()).tolist())

    def capacity(self, fleet: Fleet, policy: str) -> float:
        """Return requests per second with full batches, routed by prompt or of a single method."""
        if not policy.startswith(ONLY):
            return self.limit(fleet)["requests_per_s"]
        full = self.seconds(rows_of(self.world.engine))[policy.removeprefix(ONLY)]
        return fleet.replicas / float(full @ self.world.workload.weights)


@dataclass(frozen=True)
class Scenario:
    """The conditions of a simulation.

    start_seconds: from when a replica is wanted until it serves. kills: seconds at which the
    busiest replica dies. learn: whether routing learns from the answers. turns: of every
    conversation. report_prefixes: whether replicas report which turns they hold. deadline,
    patience: seconds that an answer has, and after which its client leaves.
    """

    temperature: float
    max_tokens: int
    seed: int = 0
    start_seconds: float = 0.0
    kills: tuple[float, ...] = ()
    overhead: Overhead = NOTHING
    learn: bool = False
    turns: int = 1
    report_prefixes: bool = True
    deadline: float | None = None
    patience: float | None = None


def load_experiment(
    given: ServiceFlags, traces: Path | None, costs: str, scenario: Scenario
) -> Experiment:
    """Load the service to simulate. Its prompts are those traced, or else the table's clusters.

    Raises InputError, and ValueError if table and traces do not fit together.
    """
    config, methods, overhead = given.config, given.methods, scenario.overhead
    temperature, max_tokens, seed = scenario.temperature, scenario.max_tokens, scenario.seed
    if costs != MEASURED and costs not in PUBLISHED:
        raise InputError(
            f"--costs: {costs} is unknown; known costs: {', '.join([MEASURED, *PUBLISHED])}"
        )
    setup = resolve(config, given.bundle, methods)
    folder = given.routing or config.router.routing or setup.bundle / "routing"
    table = _admitted(load_table(folder), setup.names, methods is not None, config.router.lossy)
    specs = [spec for name in table.methods for spec in setup.methods if spec.name == name]
    if traces is None:
        workload = table_workload(table, specs, temperature, max_tokens, seed)
    else:
        rows = _rows(table, traces, temperature)
        workload = _traced(config, table, traces, rows, seed)
    engine = setup.engine
    if costs == MEASURED:
        model: MeasuredCosts | PublishedCosts = MeasuredCosts(table)
        source = f"{table.measured_under.machine}, {table.measured_under.dtype}"
    else:
        model = PublishedCosts(PUBLISHED[costs], specs)
        table = retimed_by(model, table, workload.mean_widths(), rows_of(engine))
        source = model.figures.source
    feedback = config.feedback
    world = World(
        *(table, config.router, engine, ServedCosts(model, overhead), workload),
        *(feedback.load_report_seconds, scenario.start_seconds, overhead),
        *(feedback.flush_seconds if scenario.learn else None, scenario.kills),
        ingresses=config.http.ingress_replicas,
        turns=scenario.turns,
        report_prefixes=scenario.report_prefixes,
        deadline=scenario.deadline,
        patience=scenario.patience,
    )
    settings = {
        "layout": config.layout,
        "methods": list(table.methods),
        "costs": {"model": costs, "source": source},
        "prompts": {
            "of": "the routing table's clusters" if traces is None else traces.name,
            "count": len(workload.questions),
        },
        "fit_id": table.fit_id,
        "bundle": table.measured_under.bundle,
        "engine": engine.model_dump(mode="json"),
        "exploration": config.router.exploration,
        "overhead": overhead.model_dump(mode="json"),
        "learn": scenario.learn,
        "ingresses": config.http.ingress_replicas,
        "turns": scenario.turns,
        "report_prefixes": scenario.report_prefixes,
        "deadline": scenario.deadline,
        "patience": scenario.patience,
        "temperature": temperature,
        "max_tokens": workload.questions[0].features.max_tokens,
        "start_seconds": scenario.start_seconds,
        "kills": list(scenario.kills),
        "seed": seed,
    }
    return Experiment(config, world, settings, model)


def _admitted(table: RoutingTable, configured: list[str], named: bool, lossy: bool) -> RoutingTable:
    """The table of the methods asked for, or else of those configured that it knows and that the
    configuration admits."""
    known = configured if named else [m for m in configured if m in table.methods]
    admitted = [m for m in known if named or lossy or table.lossless.get(m, False)]
    if not admitted:
        raise InputError(
            f"--methods: none of {', '.join(configured)} is in the routing table, which has "
            f"{', '.join(table.methods)}"
        )
    return restrict(table, admitted)


def _rows(table: RoutingTable, traces: Path, temperature: float) -> list[dict[str, Any]]:
    meta = read_meta(traces)
    if meta.measured_under.bundle != table.measured_under.bundle:
        raise InputError(
            f"--traces: made with {meta.measured_under.bundle}, the routing table with "
            f"{table.measured_under.bundle}"
        )
    rows = list(read_rows(traces, [("temperature", "=", temperature)]))
    if not rows:
        raise InputError(f"--temperature: {traces} has no answer at {temperature:g}")
    return rows


def _traced(
    config: AppConfig,
    table: RoutingTable,
    traces: Path,
    rows: Sequence[Mapping[str, Any]],
    seed: int,
) -> Workload:
    asked = {row["prompt_id"]: (row["text"], len(row["prompt"])) for row in rows}
    texts, tokens = zip(*asked.values(), strict=True)
    encoder = Encoder(config.router.encoder, config.router.encoder_threads)
    vectors = embed(encoder, texts, "prompts")
    labels = map(int, cluster.assign(table.centroids, vectors))
    seen = zip(labels, predictions(table, vectors, texts, tokens), strict=True)
    known = dict(zip(asked, seen, strict=True))
    return traced_workload(rows, table.methods, known, read_meta(traces).max_tokens, seed)
