"""The learned state and its last snapshots, in a folder given by an fsspec URI.

Each owner claims an epoch and writes only its own file, `state-<epoch>.json`; the highest epoch is
active. An older owner (of a cluster being replaced, or a process thought dead) can therefore never
overwrite a newer one's state, even on stores without locks. An owner that restarts claims another
epoch, but not over an owner that first came after it: `owner-<name>` holds the epoch that an owner
came with.
"""

import json
import logging
import os
import re
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Literal

import fsspec
from fsspec.implementations.local import LocalFileSystem

from schemas import RoutingTable, Snapshot
from schemas.json_files import parse_json

logger = logging.getLogger(__name__)

Occasion = Literal["time", "refit", "rollback", "reset"]

SNAPSHOT_SECONDS = 3600.0
KEPT = 10

_SNAPSHOT = re.compile(r"snapshot-(\d{8})\.json$")
_STATE = re.compile(r"state-(\d{10})\.json$")
_OWNER = re.compile(r"owner-(\w+)$")
_STATES_KEPT = 3
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


def _paths(fs: Any, folder: str) -> list[str]:
    """Return the files in a folder."""
    fs.invalidate_cache(folder)
    try:
        paths: list[str] = fs.ls(folder, detail=False)
    except FileNotFoundError:  # an object store has no empty folders
        return []
    return paths


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


class StateStore:
    """Read and write the state under `uri` as one owner; not safe for concurrent calls.

    owner: its name (letters and digits), the same after a restart; by default a new one.
    """

    def __init__(self, uri: str, owner: str | None = None) -> None:
        self._fs, self._folder = file_system(uri)
        self._owner = owner or uuid.uuid4().hex
        self.epoch = 0

    def claim(self) -> dict[str, Any] | None:
        """Become the owner and return the last readable state, None if there is none.

        The previous owner is superseded from here on. Raises SupersededError if another owner
        claims at the same time and comes later, or has come since this one first did.
        """
        self._fs.makedirs(self._folder, exist_ok=True)
        came = self._owners()
        if self._owner in came and came[self._owner] < max(came.values()):
            raise SupersededError("another owner has come since this one was first started")
        while True:
            epochs = self._epochs()
            self.epoch = (epochs[-1] if epochs else 0) + 1
            try:
                create_file(self._fs, self._path(self.epoch), _encoded(None))
                break
            except FileExistsError:
                continue
        if self._owner not in came:
            replace_file(self._fs, f"{self._folder}/owner-{self._owner}", _encoded(self.epoch))
        # Read only now: what the owner before saves from here on it is told to be lost.
        state = self._newest_readable(epochs)
        self.save(state)
        self._tidy([self._path(old) for old in epochs[: -(_STATES_KEPT - 1)]])
        oldest_first = sorted(came, key=lambda owner: came[owner])
        self._tidy([f"{self._folder}/owner-{name}" for name in oldest_first[:-_OWNERS_KEPT]])
        return state

    def read(self) -> dict[str, Any] | None:
        """Return the last readable state of any owner, None if there is none."""
        return self._newest_readable(self._epochs())

    def save(self, state: dict[str, Any] | None) -> None:
        """Replace this owner's state atomically. Raises SupersededError if it is no longer the
        owner."""
        if self._superseded():
            raise SupersededError(f"a later owner has taken over from epoch {self.epoch}")
        replace_file(self._fs, self._path(self.epoch), _encoded(state))

    def _superseded(self) -> bool:
        """Return whether another owner has claimed the state since.

        It claims the next epoch, so two looks at single files are enough, which object stores
        charge far less for than for a list. Only if owners after it have tidied this one's file
        away may the next one's be gone too.
        """
        self._fs.invalidate_cache(self._folder)
        if self._fs.exists(self._path(self.epoch + 1)):
            return True
        there = self._fs.exists(self._path(self.epoch))
        return not there and max(self._epochs(), default=0) > self.epoch

    def _epochs(self) -> list[int]:
        return sorted(int(m[1]) for m in map(_STATE.search, _paths(self._fs, self._folder)) if m)

    def _owners(self) -> dict[str, int]:
        """Return the epoch that each owner first came with."""
        found = {}
        for path in _paths(self._fs, self._folder):
            if named := _OWNER.search(path):
                with suppress(FileNotFoundError, ValueError):
                    found[named[1]] = int(json.loads(self._fs.cat_file(path)))
        return found

    def _tidy(self, paths: Iterable[str]) -> None:
        for path in paths:
            with suppress(FileNotFoundError):
                self._fs.rm_file(path)

    def _newest_readable(self, epochs: list[int]) -> dict[str, Any] | None:
        for epoch in reversed(epochs):
            path = self._path(epoch)
            try:
                state = checked_state(read_strictly(self._fs.cat_file(path), path))
            except FileNotFoundError:
                continue  # another claim has tidied it away
            except ValueError as error:
                logger.error("state %s is unreadable (%s); trying the one before", path, error)
                continue
            if state is not None:
                return state
        return None

    def _path(self, epoch: int) -> str:
        return f"{self._folder}/state-{epoch:010d}.json"


def read_strictly(raw: bytes, path: str) -> Any:
    """Return a JSON value. Raises ValueError, for NaN and infinity too: one in a state would make
    every prediction NaN, and with it every request fail."""
    return parse_json(raw.decode(), path)


def checked_state(value: Any) -> dict[str, Any] | None:
    """Return a stored state, None for that of an owner who has learned nothing. Raises ValueError
    for anything else: it could not be compared with others."""
    if value is None or (isinstance(value, dict) and type(value.get("version", 0)) is int):
        return value
    raise ValueError("not a state: it is no object, or its version is no whole number")


def _encoded(value: dict[str, Any] | int | None) -> bytes:
    return json.dumps(value, allow_nan=False).encode()


class UnknownSnapshotError(LookupError):
    """The snapshot does not exist; the message lists those that do."""


class History:
    """Keep up to KEPT snapshots under `uri` and delete the oldest.

    One is due SNAPSHOT_SECONDS after this process's last. Not safe for concurrent calls.
    """

    def __init__(self, uri: str) -> None:
        self._fs, self._folder = file_system(f"{uri}/history")
        self._last = time.monotonic()

    @property
    def due(self) -> bool:
        """Return whether it is time for another snapshot."""
        return time.monotonic() - self._last >= SNAPSHOT_SECONDS

    def add(self, state: dict[str, Any], table: RoutingTable, occasion: Occasion) -> Snapshot:
        """Keep a state; `table` is the table that it makes."""
        self._last = time.monotonic()
        self._fs.makedirs(self._folder, exist_ok=True)
        numbers = self._numbers()
        favourites = Counter(name for row in table.assignment for name in row)
        snapshot = Snapshot(
            number=(numbers[-1] if numbers else 0) + 1,
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            occasion=occasion,
            fit_id=table.fit_id,
            version=table.version,
            clusters=len(table.assignment),
            favourites=dict(favourites.most_common()),
        )
        body = {"snapshot": snapshot.model_dump(), "state": state}
        self._fs.pipe_file(self._path(snapshot.number), json.dumps(body, allow_nan=False).encode())
        for old in [*numbers, snapshot.number][:-KEPT]:
            with suppress(FileNotFoundError):
                self._fs.rm_file(self._path(old))
        return snapshot

    def all(self) -> list[Snapshot]:
        """Return the readable snapshots, the newest first."""
        found = []
        for number in reversed(self._numbers()):
            try:
                found.append(Snapshot.model_validate(self._read(number)["snapshot"]))
            except (ValueError, KeyError, FileNotFoundError) as error:
                logger.error("snapshot %d is unreadable: %s", number, error)
        return found

    def state(self, number: int) -> dict[str, Any]:
        """Return the state in a snapshot. Raises UnknownSnapshotError."""
        try:
            state: dict[str, Any] = self._read(number)["state"]
        except (ValueError, KeyError, FileNotFoundError) as error:
            there = ", ".join(map(str, self._numbers())) or "none"
            raise UnknownSnapshotError(
                f"there is no snapshot {number} (there are {there})"
            ) from error
        return state

    def _numbers(self) -> list[int]:
        paths = _paths(self._fs, self._folder)
        return sorted(int(match[1]) for match in map(_SNAPSHOT.search, paths) if match)

    def _read(self, number: int) -> dict[str, Any]:
        """Raises ValueError and KeyError for what is no snapshot, FileNotFoundError."""
        path = self._path(number)
        body = read_strictly(self._fs.cat_file(path), path)
        if not isinstance(body, dict) or checked_state(body["state"]) is None:
            raise ValueError("it holds no state")
        return body

    def _path(self, number: int) -> str:
        return f"{self._folder}/snapshot-{number:08d}.json"
