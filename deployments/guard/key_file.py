"""The file of accepted API keys, and which requests share what by them."""

import hashlib
import logging
from collections.abc import Iterable
from pathlib import Path

from schemas import EngineConfig, GuardConfig, MethodSpec
from schemas.json_files import read_json, validated
from schemas.keys import ApiKey, Isolation, KeyRing
from schemas.text_files import FileError
from schemas.yaml_files import read_document
from workers.methods import PAST_ANSWERS, keeps_every_answer

logger = logging.getLogger(__name__)

KINDS: dict[Isolation, tuple[str, ...]] = {
    "none": (),
    "tenant": ("tenant", "key"),
    "key": ("key",),
}
"""Kinds of scopes that requests have under an isolation."""


class KeyFile:
    """Read keys from a YAML or JSON file, such as a mounted secret.

    An unreadable new version is logged and the previous keys stay active. Raises ValueError if
    the first version is unreadable.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen = _version(file)
        self._ring = read_keys(file)
        self._by_hash = {key.sha256: key for key in self._ring.keys}

    @property
    def ring(self) -> KeyRing:
        """Return the active keys."""
        self._refresh()
        return self._ring

    def find(self, presented: str) -> ApiKey | None:
        """Return the key with this text, None if it is not accepted."""
        self._refresh()
        return self._by_hash.get(hash_of(presented))

    def _refresh(self) -> None:
        version = _version(self._file)
        if version == self._seen:
            return
        self._seen = version
        try:
            self._ring = read_keys(self._file)
        except ValueError as error:
            logger.error("%s; the keys that were read before stay in force", error)
            return
        self._by_hash = {key.sha256: key for key in self._ring.keys}
        logger.info("%s: %d keys", self._file, len(self._ring.keys))


def hash_of(key: str) -> str:
    """Return the SHA-256 of a key as 64 hex digits. Keys are long and random, so it needs no
    salt."""
    return hashlib.sha256(key.encode()).hexdigest()


def read_keys(file: Path) -> KeyRing:
    """Read the keys of a YAML or JSON file. Raises ValueError naming the file and the field."""
    try:
        # YAML takes no tabs, which JSON may be indented with.
        found = read_json(file) if file.suffix == ".json" else read_document(file)
        return validated(KeyRing, found, str(file))
    except FileError as error:
        raise ValueError(f"http.guard.keys_file: {error}") from error


def _version(file: Path) -> tuple[int, ...] | None:
    """Return what changes with the file; a mounted secret changes by moving a link."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def scope_of(key: ApiKey, isolation: Isolation) -> str:
    """Return the scope of a key's requests.

    Requests share caches and past responses within a scope only. A key without a tenant has its
    own.
    """
    if isolation == "none":
        return ""
    shared = isolation == "tenant" and key.tenant is not None
    return f"tenant {key.tenant}" if shared else f"key {key.name}"


def check_isolation(guard: GuardConfig, specs: Iterable[MethodSpec], engine: EngineConfig) -> None:
    """Raise ValueError for a method that would draft one scope's answers from another's, and for
    scopes of the datastore that no request has."""
    store = engine.datastore
    for scope in () if store is None or store.scopes is None else store.scopes:
        if scope.split()[0] not in KINDS[guard.isolated]:
            raise ValueError(
                f"engine.datastore.scopes: no request has the scope {scope!r}, since "
                f"http.guard.isolation is {guard.isolated}: set it to {scope.split()[0]}, or leave "
                "the scope out"
            )
    if guard.isolated == "none":
        return
    for spec in specs:
        if keeps_every_answer(spec, elsewhere=engine.openai is not None):
            setting = (
                f"set its settings.drafter.{PAST_ANSWERS}: 0, " if engine.openai is None else ""
            )
            raise ValueError(
                f"http.guard.isolation: {guard.isolated} is not possible: {spec.name} drafts from "
                f"all past answers of its replica; {setting}remove the method, or set "
                "isolation: none if keys may learn what others asked"
            )
