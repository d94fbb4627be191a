"""The versions of a drafter's head that serve side by side."""

import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from workers.head_files import refuse_not_finite
from workers.torch_engine.sequence import DecodeSequence

Head = TypeVar("Head")


class HeadVersions(Generic[Head]):
    """Hold the loaded versions of a drafter's head and bind each sequence to one of them.

    A sequence keeps its version until it ends, because no other version can read the keys and
    values that this one has computed. Version 0 is the bundle's own head, None if it has none. New
    sequences get the active version, and a share of them the canary, if there is one.

    `exchange` may be called in any thread, by one caller at a time. Everything else belongs to the
    stepper thread.

    part: the bundle's part that holds the head. own: the bundle's own head. load: builds a head
    from a folder, or from the bundle for None, and raises BundleError if it does not fit.
    changes: how often the versions of new sequences have changed.
    """

    def __init__(self, part: str, own: Head, load: Callable[[Path | None], Head]) -> None:
        self.part = part
        self.changes = 0
        self._load = load
        self._loaded = {0: own}
        self._active, self._canary, self._share = 0, 0, 0.0
        self._sequences: dict[int, set[int]] = {}
        self._lock = threading.Lock()

    def exchange(self, version: int, folder: Path | None, share: float) -> None:
        """Activate a version (share 1), or make it the canary for a share of new sequences.

        The version is loaded first, unless it is there. An active version ends the canary.
        Raises BundleError, and changes nothing, for a head that does not fit or holds NaN.
        """
        if version in self._loaded:
            head = self._loaded[version]
        else:
            if folder is not None:
                refuse_not_finite(folder)
            head = self._load(folder)
        serving = (version, version, 0.0) if share == 1.0 else (self._active, version, share)
        with self._lock:
            if serving != (self._active, self._canary, self._share):
                self._loaded[version] = head
                self._active, self._canary, self._share = serving
                self.changes += 1

    def bind(self, sequence: DecodeSequence) -> int:
        """Return the version that drafts for a sequence. The first call chooses it, by a hash of
        the request's id that differs by part."""
        if self.part not in sequence.head_versions:
            place = zlib.crc32(f"{self.part} {sequence.request.request_id}".encode()) / 2**32
            with self._lock:
                version = self._canary if place < self._share else self._active
                self._sequences.setdefault(version, set()).add(sequence.id)
                self._unload()
            sequence.head_versions[self.part] = version
        return sequence.head_versions[self.part]

    def of(self, sequence: DecodeSequence) -> Head:
        """Return the head that drafts for a sequence."""
        return self._loaded[self.bind(sequence)]

    def release(self, sequence: DecodeSequence) -> None:
        """Forget a sequence; it may be one that was never bound."""
        version = sequence.head_versions.get(self.part)
        if version in self._sequences:
            self._sequences[version].discard(sequence.id)

    def _unload(self) -> None:
        """Free versions that no sequence has and none will get."""
        for version in self._loaded.keys() - {self._active, self._canary}:
            if not self._sequences.get(version):
                del self._loaded[version]
                self._sequences.pop(version, None)
