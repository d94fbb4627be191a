"""The learned state, in a folder given by an fsspec URI.

Every write creates another file, `state-<number>.json`, which must not exist yet; the highest
number is active. Two owners (one of a cluster that is being replaced, or a process thought dead)
therefore never overwrite each other's state, even on stores without locks: the first one that
finds the next number taken is superseded. Each file names the owners in the order in which they
came, so that an older one that restarts does not take over.
"""

import json
import logging
import os
import re
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Literal

import fsspec
from fsspec.implementations.local import LocalFileSystem

from schemas import RoutingTable, Snapshot
from schemas.base import Schema
from schemas.json_files import parse_json

logger = logging.getLogger(__name__)

Occasion = Literal["time", "rollback", "reset"]

SNAPSHOT_SECONDS = 3600.0
KEPT = 10

_NAME = re.compile(r"state-(\d{10})\.json$")
_PASSING_KEPT = 2
_CLAIMS_KEPT = 3
_OWNERS_KEPT = 16
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
"""By the URI's protocol: which of our extras has its file system."""


class StoreAwayError(OSError):
    """The store cannot be opened, or a call of it failed or did not end in time."""


def file_system(uri: str) -> tuple[Any, str]:
    """Return the fsspec file system of a URI, and the folder in it.

    Raises StoreAwayError naming what to install for a protocol that has no file system here.
    """
    try:
        return fsspec.core.url_to_fs(uri)  # type: ignore[no-any-return]
    except ImportError as error:
        extra = _EXTRAS.get(uri.partition("://")[0])
        fix = f": pip install 'specadapt[{extra}]'" if extra else ""
        raise StoreAwayError(f"{uri}: {error}{fix}") from error
    except ValueError as error:
        raise StoreAwayError(f"{uri}: {error}") from error


def replace_file(fs: Any, path: str, body: bytes) -> None:
    """Write a file whole or not at all, in place of the one at `path` if there is one.

    A process killed meanwhile leaves at most `<path>.<hex digits>.tmp` in a local folder.
    """
    if not isinstance(fs, LocalFileSystem):
        fs.pipe_file(path, body)  # object stores put an object whole or not at all
        return
    with _written_aside(fs, path, body) as temporary:
        os.replace(temporary, path)  # noqa: PTH105 - the path is fsspec's


def create_file(fs: Any, path: str, body: bytes) -> None:
    """Write a file that does not exist yet, as `replace_file` does. Raises FileExistsError."""
    if not isinstance(fs, LocalFileSystem):
        fs.pipe_file(path, body, mode="create")
        return
    with _written_aside(fs, path, body) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise
        except OSError:  # a mount without hard links: others may see the file before its content
            with fs.open(path, "xb") as file:
                file.write(body)


def listed(fs: Any, folder: str) -> list[str]:
    """Return the paths in a folder, none if it does not exist: an object store has no empty
    folders."""
    fs.invalidate_cache(folder)
    try:
        return [path.rstrip("/") for path in fs.ls(folder, detail=False)]
    except FileNotFoundError:
        return []


def remove_files(fs: Any, paths: Iterable[str]) -> None:
    """Remove files. Ignore those that another process has removed."""
    for path in paths:
        with suppress(FileNotFoundError):
            fs.rm_file(path)


@contextmanager
def _written_aside(fs: Any, path: str, body: bytes) -> Iterator[str]:
    """Yield a file next to `path` with this content, and remove it afterwards."""
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    try:
        with fs.open(temporary, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        if fs.exists(temporary):
            fs.rm_file(temporary)


class SupersededError(RuntimeError):
    """A newer owner has claimed the state; this one must stop learning."""


class UnknownSnapshotError(LookupError):
    """The snapshot does not exist; the message lists those that do."""


class StoredState(Schema):
    """A file of the store. epoch: number of the file with which its owner came."""

    epoch: int
    owners: tuple[str, ...]
    snapshot: Snapshot | None = None
    state: dict[str, Any] | None


class StateStore:
    """Read and write the state under `uri` as one owner; not safe for concurrent calls.

    The last KEPT snapshots stay; one is due SNAPSHOT_SECONDS after this process's last. owner: its
    name, the same after a restart; by default a new one.
    """

    def __init__(self, uri: str, owner: str | None = None) -> None:
        self._fs, self._folder = file_system(uri)
        self._owner = owner or uuid.uuid4().hex
        self._owners: tuple[str, ...] = ()
        self._files: dict[int, StoredState | None] = {}
        self._last_snapshot = time.monotonic()
        self.epoch = 0

    @property
    def snapshot_due(self) -> bool:
        """Return whether it is time for another snapshot."""
        return time.monotonic() - self._last_snapshot >= SNAPSHOT_SECONDS

    def claim(self) -> dict[str, Any] | None:
        """Become the owner and return the last readable state, None if there is none.

        The previous owner is superseded from here on. Raises SupersededError if another owner has
        come since this one first did.
        """
        self._fs.makedirs(self._folder, exist_ok=True)
        while True:
            files = self._read_all()
            last = _newest(files)
            came = last.owners if last else ()
            if self._owner in came[:-1]:
                raise SupersededError("another owner has come since this one was first started")
            self.epoch = max(files, default=0) + 1
            self._owners = (*(o for o in came if o != self._owner), self._owner)[-_OWNERS_KEPT:]
            self._files = dict(files)
            state = last.state if last else None
            try:
                self._create(self.epoch, state, None)
            except FileExistsError:
                continue
            return state

    def read(self) -> dict[str, Any] | None:
        """Return the last readable state of any owner, None if there is none."""
        last = _newest(self._read_all())
        return last.state if last else None

    def save(self, state: dict[str, Any]) -> None:
        """Replace the state. Raises SupersededError if this is no longer the owner."""
        self._write(state, None)

    def keep(self, state: dict[str, Any], table: RoutingTable, occasion: Occasion) -> None:
        """Save a state as a snapshot; `table` is the table that it makes. Raises SupersededError if
        this is no longer the owner."""
        favourites = Counter(name for row in table.assignment for name in row)
        self._last_snapshot = time.monotonic()
        self._write(
            state,
            Snapshot(
                number=1,
                at=datetime.now(UTC).isoformat(timespec="seconds"),
                occasion=occasion,
                fit_id=table.fit_id,
                version=table.version,
                clusters=len(table.assignment),
                favourites=dict(favourites.most_common()),
            ),
        )

    def snapshots(self) -> list[Snapshot]:
        """Return the readable snapshots, the newest first."""
        return [one.snapshot for one in self._kept() if one.snapshot]

    def snapshot(self, number: int) -> dict[str, Any]:
        """Return the state in a snapshot. Raises UnknownSnapshotError."""
        states = {one.snapshot.number: one.state for one in self._kept() if one.snapshot}
        if not (state := states.get(number)):
            there = ", ".join(map(str, sorted(states))) or "none"
            raise UnknownSnapshotError(f"there is no snapshot {number} (there are {there})")
        return state

    def _kept(self) -> list[StoredState]:
        """Return the readable files with a snapshot, the newest first."""
        there = reversed(self._read_all().values())
        return [one for one in there if one and one.snapshot and one.state is not None][:KEPT]

    def _write(self, state: dict[str, Any], snapshot: Snapshot | None) -> None:
        number = max(self._files) + 1
        if self._cleared_away() and max(self._numbers(), default=0) >= number:
            raise self._superseded()
        while True:
            try:
                return self._create(number, state, snapshot)
            except FileExistsError as error:
                there = self._read(number)
                if there is None or there.epoch != self.epoch:
                    raise self._superseded() from error
                # A write of this owner came through although its call failed.
                self._files[number] = there
                number += 1

    def _superseded(self) -> SupersededError:
        return SupersededError(f"a later owner has taken over from epoch {self.epoch}")

    def _create(self, number: int, state: dict[str, Any] | None, snapshot: Snapshot | None) -> None:
        """Create the file of this number and remove those that are no longer needed. Raises
        FileExistsError."""
        if snapshot is not None:
            snapshot = snapshot.model_copy(update={"number": number})
        made = StoredState(epoch=self.epoch, owners=self._owners, snapshot=snapshot, state=state)
        body = json.dumps(made.model_dump(), allow_nan=False).encode()
        create_file(self._fs, self._path(number), body)
        # Only what says which files are needed is remembered.
        self._files[number] = made.model_copy(update={"state": None})
        numbers = sorted(self._files)
        there = [(number, one) for number in numbers if (one := self._files[number]) is not None]
        claims = [number for number, one in there if one.epoch == number]
        kept = [number for number, one in there if one.snapshot is not None]
        needed = {*claims[-_CLAIMS_KEPT:], *kept[-KEPT:], *numbers[-_PASSING_KEPT:]}
        remove_files(self._fs, map(self._path, self._files.keys() - needed))
        self._files = {number: one for number, one in self._files.items() if number in needed}

    def _cleared_away(self) -> bool:
        """Return whether this owner's first file is gone, as after three later claims. A look at
        one file costs far less than a list in an object store."""
        self._fs.invalidate_cache(self._folder)
        return not self._fs.exists(self._path(self.epoch))

    def _numbers(self) -> list[int]:
        paths = listed(self._fs, self._folder)
        return sorted(int(found[1]) for found in map(_NAME.search, paths) if found)

    def _read_all(self) -> dict[int, StoredState | None]:
        """Return the files by number, None where one is unreadable."""
        return {number: self._read(number) for number in self._numbers()}

    def _read(self, number: int) -> StoredState | None:
        path = self._path(number)
        try:
            # NaN and infinity are refused: one would make every prediction NaN.
            return StoredState.model_validate(parse_json(self._fs.cat_file(path).decode(), path))
        except FileNotFoundError:
            return None  # another owner has removed it
        except ValueError as error:
            logger.error("%s is unreadable: %s", path, error)
            return None

    def _path(self, number: int) -> str:
        return f"{self._folder}/state-{number:010d}.json"


def _newest(files: Mapping[int, StoredState | None]) -> StoredState | None:
    """Return the last readable file."""
    return next((files[n] for n in sorted(files, reverse=True) if files[n] is not None), None)
