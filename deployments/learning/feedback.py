"""What the feedback actor does: learns, saves what it learned, hands out tables and load reports.

The state lies in a folder that bears the fit id of the table on disk, whatever fits have been made
of it since: a restart goes on with the last of these, and a new table on disk begins anew.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deployments.artifacts import served_table
from deployments.learning.history import History, Occasion
from deployments.learning.state_store import StateStore, SupersededError
from deployments.metrics import DriftMetrics
from router import predict
from router.adaptation import Adaptation
from router.step_ratio import CROWD
from schemas import (
    AppConfig,
    DecodeStats,
    DriftReport,
    LoadReport,
    Observation,
    ObservedReport,
    RouterConfig,
    RoutingTable,
    Snapshot,
)

logger = logging.getLogger(__name__)

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
    observed: ObservedReport | None


class Feedback:
    """The actor's body; plain Python, so that a test can hold it without Ray.

    owner: who it is in the state's store, the same after a restart.
    """

    def __init__(self, config: AppConfig, owner: str | None = None) -> None:
        self._config = config
        self._report_seconds = config.feedback.load_report_seconds
        table = served_table(config)
        uri = f"{config.feedback.state_uri}/{table.fit_id}"
        self._store = StateStore(uri, owner)
        self._history = History(
            uri, config.feedback.snapshot_seconds, config.feedback.snapshots_kept
        )
        self._superseded = False
        try:
            state = self._store.claim()
        except SupersededError as error:
            logger.warning("not learning: %s", error)
            self._superseded, state = True, self._store.read()
        self._adaptation = _restored(table, config, _newest(state, self._history))
        self._metrics = DriftMetrics()
        self._learning = asyncio.Lock()
        self._refitting: asyncio.Task[None] | None = None
        self._loads: dict[str, tuple[float, LoadReport]] = {}
        self._born = self._called = time.monotonic()

    async def exchange(
        self,
        observations: Sequence[Observation],
        known: tuple[str, int],
        settings: RouterConfig | None = None,
    ) -> Exchange:
        """Learn from `observations`; `known` is (fit id, version) of the caller's table, `settings`
        what is learned by from now on; None: as before."""
        self._called = time.monotonic()
        if settings is not None and settings != self._config.router:
            await self._change(settings)
        acknowledged = await self._learn(observations) if observations else True
        table = self._adaptation.table
        return Exchange(
            table=None if (table.fit_id, table.version) == known else table,
            loads=tuple(self._live()),
            acknowledged=acknowledged,
            settled=self._called - self._born > _MISSED_REPORTS / 2 * self._report_seconds,
            epoch=self._store.epoch,
            drift=self._adaptation.report(),
            observed=self._adaptation.observed(),
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
        times = {
            name: f"{predict.step_ratio(learned, m, 1.0):.2f}, "
            f"{predict.step_ratio(learned, m, CROWD):.2f} and {learned.live_prefill_ratio[m]:.2f}"
            for m, name in enumerate(learned.methods)
        }
        logger.info(
            "steps alone, steps of %d at once and prefills on %s take so many times as long as on "
            "%s, where the table was measured: %s",
            CROWD,
            replica,
            table.measured_under.machine,
            {stats.method: times[stats.method] for stats in answers if stats.method in times},
        )

    async def history(self) -> list[Snapshot]:
        """The states that `roll_back` can go to, the newest first."""
        self._called = time.monotonic()
        async with self._learning:
            return await asyncio.to_thread(self._history.all)

    async def roll_back(self, number: int | None = None) -> Snapshot:
        """Put a snapshot in force, the newest where none is named; the state before becomes one.

        Raises UnknownSnapshotError, SupersededError, and ValueError for one that does not fit.
        """
        self._called = time.monotonic()
        async with self._learning:
            there = await asyncio.to_thread(self._history.all)
            wanted = number if number is not None else max((s.number for s in there), default=0)
            state = await asyncio.to_thread(self._history.state, wanted)
            await self._replace(self._adaptation.back_to(state), "rollback")
            return next(snapshot for snapshot in there if snapshot.number == wanted)

    async def reset(self) -> None:
        """Forget what was learned; the state before becomes a snapshot. Raises SupersededError."""
        self._called = time.monotonic()
        async with self._learning:
            await self._replace(self._adaptation.anew(), "reset")

    async def _replace(self, adaptation: Adaptation, occasion: Occasion) -> None:
        """Put another state in force, once it is in the store."""
        await self._keep(occasion)
        if not await self._saved(adaptation):
            raise SupersededError("this actor's state is not the one in force, or is not stored")
        self._adaptation = adaptation
        logger.info("%s: version %d is in force", occasion, adaptation.table.version)

    async def _keep(self, occasion: Occasion) -> None:
        present = self._adaptation
        await asyncio.to_thread(self._history.add, present.state(), present.table, occasion)

    async def report(self, load: LoadReport) -> None:
        """One replica's load, replacing its last one."""
        self._called = time.monotonic()
        self._loads[load.replica] = (self._called, load)

    async def state(self) -> dict[str, Any]:
        """The state as it would be saved, with the owner's epoch."""
        return {"epoch": self._store.epoch, "learner": self._adaptation.state()}

    def idle_seconds(self) -> float:
        return time.monotonic() - self._called

    async def _change(self, settings: RouterConfig) -> None:
        """What was learned goes on under other settings."""
        async with self._learning:
            self._adaptation = self._adaptation.under(settings)
            self._config = self._config.model_copy(update={"router": settings})

    async def _learn(self, observations: Sequence[Observation]) -> bool:
        async with self._learning:
            if self._superseded:
                return False
            drift = self._adaptation.observe(observations)
            self._metrics.reported(self._adaptation.report())
            if drift and self._config.router.refit and self._refitting is None:
                self._refitting = asyncio.create_task(self._refit())
            if self._history.due and not self._superseded:
                await self._keep_for_later()
            return await self._saved(self._adaptation)

    async def _keep_for_later(self) -> None:
        try:
            await self._keep("time")
        except OSError as error:
            logger.error("no snapshot kept: %s", error)

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
                await self._keep("refit")
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


def _newest(state: dict[str, Any] | None, history: History) -> dict[str, Any] | None:
    """The stored state, or the last snapshot where that is newer: a state whose file has become
    unreadable leaves only what an owner before it has stored, which may be weeks old."""
    kept = history.all()[:1]
    states = [{"seen": []} | history.state(snapshot.number) for snapshot in kept]
    if state is not None:
        states.insert(0, state)
    return max(states, key=lambda one: int(one.get("version", 0)), default=None)


def _restored(table: RoutingTable, config: AppConfig, state: dict[str, Any] | None) -> Adaptation:
    if state is None:
        return Adaptation(table, config.router)
    try:
        return Adaptation.restore(table, config.router, state)
    except ValueError as error:
        logger.warning("the saved state does not fit this table (%s): starting afresh", error)
        return Adaptation(table, config.router)
