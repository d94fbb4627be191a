"""A routing table that learns, and is fitted again when prompts drift."""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Self

from router.current_fit import Fit
from router.drift import DriftWatch, Reference
from router.learner import Learner
from router.refit import RecentAnswers, Refitted, moved, refit, successor
from schemas import DriftReport, Observation, RoutingTable


class Adaptation:
    """The learner of the active fit, its recent prompts, and the steps to the next fit.

    Not thread-safe; the function that `refitting` returns may run in another thread.
    """

    def __init__(self, disk: RoutingTable) -> None:
        self._disk = disk
        self._late_moved = self._late_dropped = 0
        self._recent = RecentAnswers(disk.encoder.dimension)
        self._fit = Fit.on_disk(disk)
        self._learner = Learner(disk)
        self._watch = self._watching(self._fit.reference)

    @property
    def table(self) -> RoutingTable:
        """The present version of the active fit."""
        return self._learner.table

    def observe(self, observations: Iterable[Observation]) -> bool:
        """Learn from each observation once; return whether the prompts have drifted.

        Observations of an earlier fit move to the present clusters by their vectors; without a
        vector they count for machine speed only. Those of unknown fits are dropped.
        """
        present, drift = [], False
        for observation in observations:
            late = observation.fit_id != self._fit.fit_id
            if late and observation.fit_id not in self._fit.ancestors:
                self._late_dropped += 1
                continue
            vector = self._recent.add(observation)
            if vector is not None:
                drift |= self._watch.see(vector[None, :])
            if late:
                self._late_moved += 1
                observation = moved(observation, vector, self.table)
            present.append(observation)
        self._learner.observe(present)
        return drift

    def follow_heads(
        self, versions: Mapping[str, int], parts: Mapping[str, Collection[str]]
    ) -> bool:
        """See `Learner.follow_heads`."""
        return self._learner.follow_heads(versions, parts)

    def refitting(self) -> Callable[[], Refitted | None]:
        """Return a function that makes the next fit from the present prompts (`router.refit`)."""
        reference = self._watch.reference
        if reference is None:
            return lambda: None
        recent = self._recent.all()
        return partial(refit, self._fit, self.table, reference, recent)

    def adopting(self, made: Refitted) -> Self:
        """Return the adaptation under the new fit; this one stays as it is."""
        adopted = type(self)(self._disk)
        adopted._late_moved, adopted._late_dropped = self._late_moved, self._late_dropped
        adopted._recent = self._recent
        adopted._fit = made.fit
        adopted._learner = successor(self._learner, made, self._disk, self._recent.all())
        adopted._watch = adopted._watching(made.fit.reference)
        return adopted

    def back_to(self, state: dict[str, Any]) -> Self:
        """Return to an earlier state, except for the ids counted and the version, which go on.

        Raises ValueError if it is not a state of this table.
        """
        present = self._learner.state()
        version = max(int(present["version"]), int(state.get("version", 0)))
        other = self.restore(self._disk, state | {"seen": present["seen"], "version": version})
        other._recent = self._recent
        return other

    def anew(self) -> Self:
        """Return an adaptation that has learned nothing; the table's version goes on."""
        fresh = type(self)(self._disk)
        return self.back_to(fresh.state())

    def report(self) -> DriftReport:
        """Return the state of the drift test and of the refits."""
        watch = self._watch
        source = "live" if watch.from_live else "fit"
        return DriftReport(
            share_farther=watch.share_farther,
            alarm_above=watch.alarm_above,
            prompts=watch.prompts,
            window=watch.window,
            reference=None if watch.reference is None else source,
            refits=len(self._fit.history),
            late_moved=self._late_moved,
            late_dropped=self._late_dropped,
        )

    def state(self) -> dict[str, Any]:
        """Return what must survive a restart, as JSON values; the prompts' window fills anew."""
        reference = self._watch.reference if self._watch.from_live else None
        return self._learner.state() | {
            "fit": self._fit.state() if self._fit.history else None,
            "live_reference": reference and reference.state(),
        }

    @classmethod
    def restore(cls, disk: RoutingTable, state: dict[str, Any]) -> Self:
        """Continue from a state. Raises ValueError if it is not a state of this table."""
        restored = cls(disk)
        try:
            fit, learned = state["fit"], state["live_reference"]
        except KeyError as error:
            raise ValueError(f"the saved state lacks {error}") from error
        if fit is not None:
            restored._fit = Fit.read(fit, disk)
        reference = restored._fit.reference
        restored._watch = restored._watching(reference)
        if reference is None and learned is not None:
            restored._watch.reference = Reference.read(learned)
        restored._learner = Learner.restore(restored._fit.table(disk), state)
        return restored

    def _watching(self, reference: Reference | None) -> DriftWatch:
        return DriftWatch(self._fit.centroids, reference)
