"""A replica's heads follow the version store, and their responses are counted."""

import logging
from collections.abc import Iterator
from pathlib import Path

from deployments.errors import Troubles
from deployments.head_training.canaries import SUMS
from deployments.head_training.versions import VersionStore
from schemas import DecodeStats, FeedbackConfig, HeadCounts, HeadPart, HeadsInForce
from workers.engine import HeadExchanger

logger = logging.getLogger(__name__)

FOLLOW_SECONDS = 5.0
"""Interval in which a replica looks which versions are active."""
COUNTED = 16
"""Versions of heads that a replica counts, those with the newest answers. Each report has all."""


class HeadFollower:
    """Give an engine the heads that are active, and canaries.

    serving: version of each part that was ever exchanged. refused: by version, why the engine does
    not draft with it. A head that cannot be loaded is left out:
    the engine drafts with the one it has, and while this is not the active one, without a canary.
    """

    def __init__(
        self, engine: HeadExchanger, feedback: FeedbackConfig, bundle_name: str, target: str
    ) -> None:
        self.serving: dict[HeadPart, int] = {}
        self.refused: dict[int, str] = {}
        self._engine, self._place = engine, (feedback, bundle_name, target)
        self._store: VersionStore | None = None
        self._done: dict[HeadPart, list[tuple[int, float]]] = {}
        self._troubles = Troubles(logger, "heads stay as they are")

    def follow(self) -> None:
        """Exchange heads where the store says so. Blocks; raises nothing. One call at a time."""
        failures: list[Exception] = []
        with self._troubles.logged():
            if self._store is None:
                self._store = VersionStore(*self._place)
            heads = self._store.in_force()
            for part in (part for part in heads.numbers if part in self._engine.exchangeable):
                try:
                    self._follow(self._store, part, list(_wanted(heads, part)))
                except Exception as error:  # a damaged version stops no other head
                    failures.append(error)
            if failures:
                raise failures[-1]

    def _follow(self, store: VersionStore, part: HeadPart, wanted: list[tuple[int, float]]) -> None:
        if wanted == self._done.get(part, [(0, 1.0)]):
            return
        (number, _), *canaries = wanted
        if not self._exchange(store, part, number, 1.0):
            # A canary would be compared with a version that does not draft here.
            self._exchange(store, part, self.serving.get(part, 0), 1.0)
            canaries = []
        for canary, share in canaries:
            self._exchange(store, part, canary, share)
        self._done[part] = wanted

    def _exchange(self, store: VersionStore, part: HeadPart, number: int, share: float) -> bool:
        """Give the engine a version; return whether it took it. Raises OSError if the store is
        away."""
        if number in self.refused:
            return False
        folder: Path | None = store.folder(number) if number else None
        try:
            self._engine.exchange(part, number, folder, share)
        except OSError:
            raise  # the store was away, and is asked again
        except Exception as error:
            self.refused[number] = str(error) or type(error).__name__
            logger.error("version %d of %s is not used here: %s", number, part, error)
            return False
        if share == 1.0:
            self.serving[part] = number
        logger.info("version %d of %s drafts for %.0f%% of requests", number, part, 100 * share)
        return True


class HeadTally:
    """Count a replica's answers by the version of each head that could draft for them.

    answers: those of all methods, also of methods without a head.
    """

    def __init__(self) -> None:
        self.answers = 0
        self._counts: dict[tuple[str, int], HeadCounts] = {}

    def saw(self, stats: DecodeStats) -> None:
        """Count a response. One without a step after its first token says nothing."""
        steps, tokens = stats.target_steps - 1, stats.output_tokens - 1
        if steps < 1 or stats.finish_reason == "error":
            return
        self.answers += 1
        for part, version in stats.head_versions.items():
            nothing = HeadCounts(part=part, version=version, **dict.fromkeys(SUMS, 0))
            before = self._counts.pop((part, version), nothing)
            more = (1, steps, tokens, steps**2, tokens**2, steps * tokens)
            sums = {name: getattr(before, name) + n for name, n in zip(SUMS, more, strict=True)}
            self._counts[part, version] = before.model_copy(update=sums)
            if len(self._counts) > COUNTED:
                del self._counts[next(iter(self._counts))]

    @property
    def counts(self) -> tuple[HeadCounts, ...]:
        """Return the sums by part and version."""
        return tuple(self._counts.values())


def _wanted(heads: HeadsInForce, part: HeadPart) -> Iterator[tuple[int, float]]:
    """Yield a part's versions with their shares of requests, the one active first."""
    yield heads.number(part), 1.0
    if canary := heads.canaries.get(part):
        yield canary.number, canary.share
