"""The feedback actor: learns, saves what it learned, hands out tables and load reports.

A named Ray actor rather than a Serve deployment: a deployment is not a singleton during a
rollout. It is detached, since an actor owned by one ingress would die with that ingress, and it
ends itself when nobody has called for a while, so that a deleted application leaves nothing
behind. Ray restarts it after a crash; its state comes back from the store.

The state lies in a folder that bears the fit id of the table on disk, whatever fits have been made
of it since: a restart goes on with the last of these, and a new table on disk begins anew.
"""

import asyncio
import hashlib
import logging
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray

from deployments.artifacts import served_table
from deployments.learning.state_store import StateStore, SupersededError
from deployments.metrics import DriftMetrics
from router.adaptation import Adaptation
from schemas import AppConfig, DecodeStats, DriftReport, LoadReport, Observation, RoutingTable

logger = logging.getLogger(__name__)

NAMESPACE = "specadapt"
LEASE_SECONDS = 60.0
_MISSED_REPORTS = 12


@dataclass(frozen=True)
class Exchange:
    """The actor's answer to an ingress.

    `table` is there only where the ingress has another version; `acknowledged` says that the
    observations sent are in the store; `settled` is false while the actor is too young to have
    heard from every replica.
    """

    table: RoutingTable | None
    loads: tuple[LoadReport, ...]
    acknowledged: bool
    settled: bool
    epoch: int
    drift: DriftReport


class Feedback:
    """The actor's body; plain Python, so that a test can hold it without Ray.

    owner: who it is in the state's store, the same after a restart.
    """

    def __init__(self, config: AppConfig, owner: str | None = None) -> None:
        self._config = config
        self._report_seconds = config.feedback.load_report_seconds
        table = served_table(config)
        self._store = StateStore(f"{config.feedback.state_uri}/{table.fit_id}", owner)
        self._superseded = False
        try:
            state = self._store.claim()
        except SupersededError as error:
            logger.warning("not learning: %s", error)
            self._superseded, state = True, self._store.read()
        self._adaptation = _restored(table, config, state)
        self._metrics = DriftMetrics()
        self._learning = asyncio.Lock()
        self._refitting: asyncio.Task[None] | None = None
        self._loads: dict[str, tuple[float, LoadReport]] = {}
        self._born = self._called = time.monotonic()

    async def exchange(
        self, observations: Sequence[Observation], known: tuple[str, int]
    ) -> Exchange:
        """Learn from `observations`; `known` is (fit id, version) of the caller's table."""
        self._called = time.monotonic()
        acknowledged = await self._learn(observations) if observations else True
        table = self._adaptation.table
        return Exchange(
            table=None if (table.fit_id, table.version) == known else table,
            loads=tuple(self._live()),
            acknowledged=acknowledged,
            settled=self._called - self._born > _MISSED_REPORTS / 2 * self._report_seconds,
            epoch=self._store.epoch,
            drift=self._adaptation.report(),
        )

    async def warmed_up(self, replica: str, answers: Sequence[DecodeStats]) -> None:
        """How long the methods' steps take on a replica that has just started. The machine and the
        precision may be others than those the table was measured on."""
        self._called = time.monotonic()
        table = self._adaptation.table
        await self._learn(
            [
                Observation(
                    stats=stats.model_copy(update={"request_id": f"{replica}:{stats.request_id}"}),
                    cluster=-1,
                    fit_id=table.fit_id,
                    table_version=table.version,
                    policy="warm-up",
                    reason="warm-up",
                    propensity=1.0,
                    time=time.time(),
                )
                for stats in answers
            ]
        )
        learned = self._adaptation.table
        ratios = zip(learned.live_step_ratio, learned.live_prefill_ratio, strict=True)
        times = {
            name: f"{step:.2f} and {prefill:.2f}"
            for name, (step, prefill) in zip(learned.methods, ratios, strict=True)
        }
        logger.info(
            "steps and prefills on %s take so many times as long as on %s, where the table was "
            "measured: %s",
            replica,
            table.measured_under.machine,
            {stats.method: times[stats.method] for stats in answers if stats.method in times},
        )

    async def report(self, load: LoadReport) -> None:
        """One replica's load, replacing its last one."""
        self._called = time.monotonic()
        self._loads[load.replica] = (self._called, load)

    async def state(self) -> dict[str, Any]:
        """The state as it would be saved, with the owner's epoch."""
        return {"epoch": self._store.epoch, "learner": self._adaptation.state()}

    def idle_seconds(self) -> float:
        return time.monotonic() - self._called

    async def _learn(self, observations: Sequence[Observation]) -> bool:
        async with self._learning:
            if self._superseded:
                return False
            drift = self._adaptation.observe(observations)
            self._metrics.reported(self._adaptation.report())
            if drift and self._config.router.refit and self._refitting is None:
                self._refitting = asyncio.create_task(self._refit())
            return await self._saved(self._adaptation)

    async def _saved(self, adaptation: Adaptation) -> bool:
        try:
            await asyncio.to_thread(self._store.save, adaptation.state())
        except SupersededError as error:
            logger.warning("no longer learning: %s", error)
            self._superseded = True
        except OSError as error:
            logger.error("state not saved, will be sent again: %s", error)
            return False
        return not self._superseded

    async def _refit(self) -> None:
        """New clusters, beside the exchanges; in force once they are in the store."""
        try:
            made = await asyncio.to_thread(self._adaptation.refitting())
            async with self._learning:
                if made is None or self._superseded:
                    return
                following = await asyncio.to_thread(self._adaptation.adopting, made)
                if await self._saved(following):
                    self._adaptation = following
                    self._metrics.refits.inc()
                    logger.info("prompts have drifted, fitted again: %s", made.fit.history[-1])
        except Exception:  # the fit in force goes on, and the next test of the drift tries again
            logger.exception("the refit failed")
        finally:
            self._refitting = None

    def _live(self) -> list[LoadReport]:
        # By the time of arrival on this machine's clock: replicas' clocks may differ.
        horizon = time.monotonic() - _MISSED_REPORTS * self._report_seconds
        self._loads = {r: seen for r, seen in self._loads.items() if seen[0] >= horizon}
        return [load for _, load in self._loads.values()]


class FeedbackActor(Feedback):
    """`Feedback` inside Ray: ends itself when nobody has called for `LEASE_SECONDS`."""

    def __init__(self, config: AppConfig, owner: str) -> None:
        super().__init__(config, owner)
        handle = ray.get_runtime_context().current_actor
        threading.Thread(target=self._end_when_idle, args=(handle,), daemon=True).start()

    def _end_when_idle(self, handle: Any) -> None:
        while self.idle_seconds() < LEASE_SECONDS:
            time.sleep(LEASE_SECONDS / 10)
        logger.info("nobody has called for %.0f s: ending", LEASE_SECONDS)
        ray.kill(handle, no_restart=True)


def actor_name(application: str, config: AppConfig) -> str:
    """One actor per application and configuration: a redeployment with another configuration
    gets an actor of its own, and the old one's lease runs out."""
    digest = hashlib.sha256(config.model_dump_json().encode()).hexdigest()[:12]
    return f"feedback:{application}:{digest}"


def feedback_actor(name: str, config: AppConfig) -> Any:
    """The actor's handle; created where it does not exist. Blocks on Ray's control store.

    Ray starts it again with the same arguments, so it stays the owner that it was at first.
    """
    options = {
        "name": name,
        "namespace": NAMESPACE,
        "get_if_exists": True,
        "lifetime": "detached",
        "max_restarts": -1,
        "num_cpus": 0,
        "runtime_env": {"env_vars": {"OMP_NUM_THREADS": "1"}},
    }
    return ray.remote(FeedbackActor).options(**options).remote(config, uuid.uuid4().hex)


def _restored(table: RoutingTable, config: AppConfig, state: dict[str, Any] | None) -> Adaptation:
    if state is None:
        return Adaptation(table, config.router)
    try:
        return Adaptation.restore(table, config.router, state)
    except ValueError as error:
        logger.warning("the saved state does not fit this table (%s): starting afresh", error)
        return Adaptation(table, config.router)
