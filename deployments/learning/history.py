"""Snapshots of earlier learned states, in a folder next to the state in force."""

import json
import logging
import re
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal

from deployments.learning.file_system import file_system
from deployments.learning.state_store import checked_state, read_strictly
from schemas import RoutingTable, Snapshot

logger = logging.getLogger(__name__)

Occasion = Literal["time", "refit", "rollback", "reset"]

SNAPSHOT_SECONDS = 3600.0
KEPT = 10

_NAME = re.compile(r"snapshot-(\d{8})\.json$")


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
        self._fs.invalidate_cache(self._folder)
        try:
            names = self._fs.ls(self._folder, detail=False)
        except FileNotFoundError:
            return []
        return sorted(int(match[1]) for match in map(_NAME.search, names) if match)

    def _read(self, number: int) -> dict[str, Any]:
        """Raises ValueError and KeyError for what is no snapshot, FileNotFoundError."""
        path = self._path(number)
        body = read_strictly(self._fs.cat_file(path), path)
        if not isinstance(body, dict) or checked_state(body["state"]) is None:
            raise ValueError("it holds no state")
        return body

    def _path(self, number: int) -> str:
        return f"{self._folder}/snapshot-{number:08d}.json"
