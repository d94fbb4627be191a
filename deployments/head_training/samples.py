"""The samples that heads learn from: which are kept, how long, and whose are erased."""

import gzip
import heapq
import logging
import math
import re
import threading
import time
import uuid
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b

from fsspec.implementations.local import LocalFileSystem

from deployments.errors import Troubles
from deployments.learning.state_store import (
    file_system,
    listed,
    remove_files,
    replace_file,
)
from schemas import FeedbackConfig, Sample
from schemas.base import Schema

logger = logging.getLogger(__name__)

TIDY_SECONDS = 600.0
"""How long a sample may stay in a file after it has expired, was dropped or was erased."""
OVERDUE = 2
"""Age, in times of what samples are retained, at which a running round loses a sample too."""
_FILE = re.compile(r"samples-\w+\.jsonl\.gz$")
_ERASURE = re.compile(r"erased-\w+\.json$")


Cluster = tuple[str, int]
"""A routing table's fit id, and a cluster of it."""


class Reservoir:
    """Keep samples of at most `most_tokens` tokens, prompts and responses together.

    If the reservoir is full, the largest cluster drops samples. Many similar prompts thus replace
    only each other, and a cluster that needs no more than an even share keeps all of its
    own. Within a cluster the samples with the lowest hashes go first, which leaves a uniform sample
    (bottom-k sketches, Cohen and Kaplan, 10.1145/1281100.1281133).
    """

    def __init__(self, most_tokens: int) -> None:
        self._most_tokens = most_tokens
        self._samples: dict[str, Sample] = {}
        self._ranked: dict[Cluster, list[tuple[bytes, str]]] = {}
        self._taken: Counter[Cluster] = Counter()

    def add(self, sample: Sample) -> None:
        """Add a sample unless it is there or larger than the reservoir.

        If the reservoir is full, drop others or the sample itself.
        """
        if sample.id in self._samples or sample.size > self._most_tokens:
            return
        cluster = sample.fit_id, sample.cluster
        self._samples[sample.id] = sample
        self._taken[cluster] += sample.size
        rank = blake2b(sample.id.encode(), digest_size=8).digest()
        heapq.heappush(self._ranked.setdefault(cluster, []), (rank, sample.id))
        while self._taken.total() > self._most_tokens:
            largest = max(self._taken, key=lambda one: (self._taken[one], one))
            _, lowest = heapq.heappop(self._ranked[largest])
            self._taken[largest] -= self._samples.pop(lowest).size

    def discard(self, unwanted: Callable[[Sample], bool]) -> None:
        """Remove the samples for which `unwanted` is true."""
        kept = [sample for sample in self if not unwanted(sample)]
        self._samples, self._ranked, self._taken = {}, {}, Counter()
        for sample in kept:
            self.add(sample)

    def __iter__(self) -> Iterator[Sample]:
        return iter(self._samples.values())


class Erasure(Schema):
    """A mark that an owner's samples up to a time, in seconds since the epoch, are erased."""

    owner: str
    until: float


class SampleStore:
    """Read and write files of samples and marks of erasure under `uri`.

    A file holds samples as gzipped JSON lines and appears whole or not at all. Several processes
    may write at once, since each file has a name of its own. Methods raise whatever the file system
    raises. Not safe for concurrent calls.
    """

    def __init__(self, uri: str) -> None:
        self._fs, self._folder = file_system(uri)
        self.known: set[str] = set()
        """Files that were read or written and not replaced since."""

    def read_new(self) -> list[Sample]:
        """Return the samples of files that this object has neither read nor written.

        Damaged files are logged and skipped.
        """
        found: list[Sample] = []
        for path in listed(self._fs, self._folder):
            if _FILE.search(path) and path not in self.known:
                with suppress(FileNotFoundError):  # another process has replaced it
                    found += _decoded(self._fs.cat_file(path), path)
                    self.known.add(path)
        return found

    def append(self, samples: Iterable[Sample]) -> None:
        """Write samples to a new file."""
        path = f"{self._folder}/samples-{uuid.uuid4().hex}.jsonl.gz"
        lines = "\n".join(sample.model_dump_json() for sample in samples)
        self._write(path, gzip.compress(lines.encode(), compresslevel=1))
        self.known.add(path)

    def rewrite(self, samples: Sequence[Sample]) -> None:
        """Replace all known files by one with these samples, or by none.

        What a killed process left half-written is removed too.
        """
        old = set(self.known)
        paths = listed(self._fs, self._folder)
        remove_files(self._fs, (path for path in paths if path.endswith(".tmp")))
        if samples:
            self.append(samples)
        remove_files(self._fs, old)
        self.known -= old

    def mark_erased(self, erasure: Erasure) -> None:
        """Tell every process that writes here that an owner's samples are erased."""
        path = f"{self._folder}/erased-{uuid.uuid4().hex}.json"
        self._write(path, erasure.model_dump_json().encode())

    def erasures(self, since: float) -> dict[str, float]:
        """Return until when each owner's samples are erased, and remove marks before `since`."""
        found: dict[str, float] = {}
        for path in filter(_ERASURE.search, listed(self._fs, self._folder)):
            try:
                erasure = Erasure.model_validate_json(self._fs.cat_file(path))
            except FileNotFoundError:  # another process has removed it
                continue
            except ValueError as error:
                logger.error("mark of erasure %s is unreadable: erase again: %s", path, error)
                continue
            if erasure.until < since:
                remove_files(self._fs, [path])
            found[erasure.owner] = max(erasure.until, found.get(erasure.owner, -math.inf))
        return found

    def _write(self, path: str, body: bytes) -> None:
        self._fs.makedirs(self._folder, exist_ok=True)
        if isinstance(self._fs, LocalFileSystem):
            # What users wrote is readable for the service's own user only.
            with suppress(PermissionError):
                self._fs.chmod(self._folder, 0o700)
        replace_file(self._fs, path, body)


def _decoded(body: bytes, path: str) -> list[Sample]:
    try:
        lines = gzip.decompress(body).splitlines()
        return [Sample.model_validate_json(line) for line in lines]
    except (OSError, EOFError, zlib.error, ValueError) as error:
        logger.error("samples %s are unreadable and will be removed: %s", path, error)
        return []


class Samples:
    """Keep a bounded selection of finished answers in memory and in the state's store.

    While the store is away, samples stay in memory. The state's folder and the bundle's name say
    where they are; `clock` gives seconds since the epoch. target: hash of the target whose answers
    come in, of `target_hash`. Those of another one, which had the bundle's name before, are deleted
    like expired ones. Safe for concurrent calls.
    """

    def __init__(
        self,
        feedback: FeedbackConfig,
        bundle_name: str,
        target: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.uri = f"{feedback.state_uri}/drafters/{bundle_name}/samples"
        self._retain_seconds = 3600.0 * feedback.retain_hours
        self._clock, self._target = clock, target
        self._reservoir = Reservoir(feedback.sample_tokens)
        self._store: SampleStore | None = None
        self._stored: set[str] = set()
        self._erased: dict[str, float] = {}
        self._tidied = -math.inf
        self._troubles = Troubles(
            logger,
            f"{self.uri}: new samples may be in memory only, and the store keeps samples that have "
            "expired or are erased",
        )
        self._lock = threading.Lock()

    def take(self, batch: Sequence[Sample] = ()) -> None:
        """Add samples, and delete from the store what may no longer be there. Raises nothing."""
        with self._lock:
            for sample in batch:
                self._add(sample.model_copy(update={"target": self._target}))
            with self._troubles.logged():
                self._write()

    def kept(self) -> list[Sample]:
        """Return the samples that are kept now, without those that have expired."""
        with self._lock:
            return [sample for sample in self._reservoir if not self._unwanted(sample)]

    def stored(self) -> list[Sample]:
        """Return the samples in the store that have neither expired nor been erased.

        Raises what the file system raises.
        """
        store = SampleStore(self.uri)
        with self._lock:
            self._read_erasures(store)
            found = {sample.id: sample for sample in store.read_new()}
            return [sample for sample in found.values() if not self._unwanted(sample)]

    def why_to_drop(self, samples: Sequence[Sample]) -> str | None:
        """Return why a round may no longer hold these samples, None if it may.

        It may hold one for OVERDUE times the time that samples are retained: while requests run, a
        round does nothing, so that it may last long.
        """
        oldest = self._clock() - OVERDUE * self._retain_seconds
        with self._lock:
            if any(map(self._is_erased, samples)):
                return "one of its answers is erased"
        if any(sample.time <= oldest for sample in samples):
            return f"one of its answers is {OVERDUE} times as old as retain_hours"
        return None

    def erase(self, owner: str) -> None:
        """Delete all samples of an owner up to now, also those that other processes hold.

        Another process deletes its own within TIDY_SECONDS. Raises what the file system raises.
        """
        with self._lock:
            self._opened().mark_erased(Erasure(owner=owner, until=self._clock()))
            self._tidy()

    def _write(self) -> None:
        if self._clock() - self._tidied >= TIDY_SECONDS:
            self._tidy()
            return
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
        for sample in found:
            self._add(sample)
        self._reservoir.discard(self._unwanted)
        kept = list(self._reservoir)
        ids = {sample.id for sample in kept}
        # Before the rewrite, which is a copy of everything: it may fail each time.
        self._tidied = self._clock()
        if len(store.known) > 1 or ids != self._stored:
            store.rewrite(kept)
            self._stored = ids

    def _read_erasures(self, store: SampleStore) -> None:
        # A round may hold samples for longer than this object.
        self._erased = store.erasures(self._clock() - OVERDUE * self._retain_seconds)

    def _opened(self) -> SampleStore:
        if self._store is None:
            self._store = SampleStore(self.uri)
        return self._store

    def _add(self, sample: Sample) -> None:
        if not self._unwanted(sample):
            self._reservoir.add(sample)

    def _unwanted(self, sample: Sample) -> bool:
        expired = sample.time <= self._clock() - self._retain_seconds
        return expired or sample.target != self._target or self._is_erased(sample)

    def _is_erased(self, sample: Sample) -> bool:
        return sample.time <= self._erased.get(sample.owner, -math.inf)
