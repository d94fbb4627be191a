"""The file that says which API keys are accepted, read again when it changes."""

import hashlib
import logging
from pathlib import Path

from schemas.json_files import read_json, validated
from schemas.keys import ApiKey, KeyRing
from schemas.text_files import FileError
from schemas.yaml_files import read_document

logger = logging.getLogger(__name__)


class KeyFile:
    """Keys of a YAML or JSON file, such as a mounted secret. A version that cannot be read is
    logged, and the one before stays in force. Raises ValueError where the first cannot be."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen = _version(file)
        self._ring = read_keys(file)
        self._by_hash = {key.sha256: key for key in self._ring.keys}

    @property
    def ring(self) -> KeyRing:
        """The keys in force."""
        self._refresh()
        return self._ring

    def find(self, presented: str) -> ApiKey | None:
        """The key of this text, if it is accepted."""
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
    """64 hex digits. Keys are long and random, so that a plain hash cannot be searched."""
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
    """Of what is there now; a mounted secret changes by a link's being put elsewhere."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
