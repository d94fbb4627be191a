"""The samples that drafters learn from: which are kept, how long, and whose are erased."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from deployments.drafters.reservoir import Reservoir
from deployments.drafters.sample_store import Erasure, SampleStore
from deployments.metrics import DrafterMetrics
from schemas import FeedbackConfig, Sample

logger = logging.getLogger(__name__)

TIDY_SECONDS = 600.0
"""How long a sample may stay in a file after it has expired, was dropped or was erased."""

OVERDUE = 2
"""Age, in times of what samples are retained, at which a running round loses a sample too."""


@dataclass(frozen=True)
class SampleStats:
    """Count the samples that are kept, and say why they are not stored, if they are not."""

    samples: int
    tokens: int
    problem: str | None


class Samples:
    """Keep a bounded selection of finished answers in memory and in the state's store.

    While the store is away, samples stay in memory. The state's folder and the bundle's name say
    where they are; `clock` gives seconds since the epoch. target: hash of the target whose answers
    come in, of `target_hash`. Those of another one, which had the bundle's name before, stay until
    they expire or their room is needed, but drafters do not learn from them. Safe for concurrent
    calls: while a call waits for the store, the others do without it, except for `erase`.
    """

    def __init__(
        self,
        feedback: FeedbackConfig,
        bundle_name: str,
        clock: Callable[[], float] = time.time,
        target: str = "",
    ) -> None:
        self.uri = f"{feedback.state_uri}/drafters/{bundle_name}/samples"
        self._retain_seconds = 3600.0 * feedback.retain_hours
        self._clock, self._target = clock, target
        self._reservoir = Reservoir(feedback.sample_tokens, target)
        self._store: SampleStore | None = None
        self._stored: set[str] = set()
        self._erased: dict[str, float] = {}
        self._tidied: float | None = None
        self._untidy = False
        """Whether the last rewrite has failed."""
        self._problem: str | None = None
        self._metrics = DrafterMetrics()
        self._lock = threading.Lock()
        """Guards what is in memory; never held while the store is called."""
        self._writing = threading.Lock()

    def take(self, batch: Sequence[Sample] = ()) -> None:
        """Add samples, and delete from the store what may no longer be there. Raises nothing."""
        with self._lock:
            for sample in batch:
                if not self._unwanted(sample):
                    self._reservoir.add(sample.model_copy(update={"target": self._target}))
            self._metrics.samples_kept.set(len(self._reservoir))
            self._metrics.sample_tokens_kept.set(self._reservoir.tokens)
        if not self._writing.acquire(blocking=False):
            return  # the next call writes what the one that is writing has not seen
        try:
            self._write()
        except Exception as error:  # each file system has exceptions of its own
            self._tell(f"{self.uri}: {error or type(error).__name__}")
        else:
            self._tell(self._problem if self._untidy else None)
        finally:
            self._writing.release()

    def kept(self) -> list[Sample]:
        """Return the target's samples that are kept now, without those that have expired."""
        with self._lock:
            return [sample for sample in self._reservoir if self._teaches(sample)]

    def stored(self) -> list[Sample]:
        """Return all targets' samples in the store that have neither expired nor been erased.

        Raises what the file system raises.
        """
        store = SampleStore(self.uri)
        with self._writing:
            self._read_erasures(store)
        found = {sample.id: sample for sample in store.read_new()}
        with self._lock:
            return [sample for sample in found.values() if not self._unwanted(sample)]

    def why_to_drop(self, samples: Iterable[Sample]) -> str | None:
        """Return why a round may no longer hold these samples, None if it may.

        It may hold one for OVERDUE times the time that samples are retained: while requests run, a
        round does nothing, so that it may last long.
        """
        samples = list(samples)
        oldest = self._clock() - OVERDUE * self._retain_seconds
        with self._lock:
            if any(map(self._is_erased, samples)):
                return "one of its answers is erased"
        if any(sample.time <= oldest for sample in samples):
            return f"one of its answers is {OVERDUE} times as old as retain_hours"
        return None

    def any_unwanted(self, samples: Iterable[Sample]) -> bool:
        """Return whether one of these samples has expired, is erased or is another target's."""
        with self._lock:
            return not all(map(self._teaches, samples))

    def stats(self) -> SampleStats:
        """Return how many samples and tokens are kept."""
        with self._lock:
            return SampleStats(len(self._reservoir), self._reservoir.tokens, self._problem)

    def erase(self, owner: str) -> None:
        """Delete all samples of an owner up to now, also those that other processes hold.

        Another process deletes its own within TIDY_SECONDS. Raises what the file system raises.
        """
        with self._writing:
            self._opened().mark_erased(Erasure(owner=owner, until=self._clock()))
            self._tidy()

    def _write(self) -> None:
        if self._tidied is None or self._clock() - self._tidied >= TIDY_SECONDS:
            self._tidy()
            return
        with self._lock:
            fresh = [sample for sample in self._reservoir if sample.id not in self._stored]
        if fresh:
            self._opened().append(fresh)
            self._stored |= {sample.id for sample in fresh}

    def _tidy(self) -> None:
        """Leave one file with exactly the samples that are kept.

        Other processes' files are taken over: an erasing command, or a service that is being
        replaced, writes to the same folder.
        """
        store = self._opened()
        self._read_erasures(store)
        found = store.read_new()
        self._stored |= {sample.id for sample in found}
        with self._lock:
            for sample in found:
                if not self._unwanted(sample):
                    self._reservoir.add(sample)
            self._reservoir.discard(self._unwanted)
            kept = list(self._reservoir)
        ids = {sample.id for sample in kept}
        # Before the rewrite, which is a copy of everything: it may fail each time.
        self._tidied = self._clock()
        if store.files > 1 or ids != self._stored:
            self._untidy = True
            store.rewrite(kept)
            self._stored = ids
        self._untidy = False

    def _read_erasures(self, store: SampleStore) -> None:
        erasures = store.erasures(self._clock() - self._retain_seconds)
        with self._lock:
            self._erased = {each.owner: each.until for each in sorted(erasures, key=_until)}

    def _opened(self) -> SampleStore:
        if self._store is None:
            self._store = SampleStore(self.uri)
        return self._store

    def _teaches(self, sample: Sample) -> bool:
        return sample.target == self._target and not self._unwanted(sample)

    def _unwanted(self, sample: Sample) -> bool:
        expired = sample.time <= self._clock() - self._retain_seconds
        return expired or self._is_erased(sample)

    def _is_erased(self, sample: Sample) -> bool:
        return sample.time <= self._erased.get(sample.owner, -math.inf)

    def _tell(self, problem: str | None) -> None:
        if problem is not None and self._problem is None:
            logger.warning(
                "until this is fixed, new samples may be in memory only, and the store keeps "
                "samples that have expired or are erased: %s",
                problem,
            )
        elif problem is None and self._problem is not None:
            logger.info("samples are stored and deleted again: %s", self.uri)
        self._problem = problem


def _until(erasure: Erasure) -> float:
    return erasure.until
