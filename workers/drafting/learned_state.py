"""A file that keeps between starts what the adaptive method has learned."""

import json
import logging
import math
import os
import platform
import time
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from workers.bundle import MANIFEST, Bundle
from workers.drafting.estimates import Estimates

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 60.0


class LearnedState:
    """Begin estimates with half of what a file holds, and store them there.

    key: what they depend on. There is a file for each key, which repeats it. A damaged file and one
    that cannot be written cost a warning.
    """

    def __init__(self, folder: Path, key: Mapping[str, str], estimates: Estimates) -> None:
        self._key, self._estimates = dict(key), estimates
        name = sha256(json.dumps(self._key, sort_keys=True).encode()).hexdigest()[:16]
        self._file = folder / f"{name}.json"
        self._stored = time.monotonic()
        try:
            stored = json.loads(self._file.read_bytes())
            if stored["key"] != self._key:
                raise ValueError("it belongs to other settings")
            estimates.load(stored["estimates"])
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, LookupError) as error:
            log.warning("%s: adaptive begins without what it learned: %r", self._file, error)

    def store(self, *, now: bool = False) -> None:
        """Store the estimates, unless they were stored within the last minute. now: in any case."""
        if not now and time.monotonic() - self._stored < INTERVAL_SECONDS:
            return
        self._stored = time.monotonic()
        part = self._file.with_suffix(f".{os.getpid()}")
        try:
            part.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps({"key": self._key, "estimates": self._estimates.dump()}))
            part.replace(self._file)
        except OSError as error:
            self._stored = math.inf  # one warning is enough
            log.warning("%s: what adaptive learned is not stored: %s", self._file, error)


def key_of(bundle: Bundle, dtype: str, threads: int, device: str) -> dict[str, str]:
    """Return what step times and acceptance depend on. device: "cpu", or a GPU's name."""
    if device == "cpu":
        try:
            flags = Path("/proc/cpuinfo").read_text().partition("flags")[2].splitlines()[0]
        except (OSError, IndexError):
            flags = platform.processor()
        # torch and our kernels use no wider instructions than this names
        device = f"{flags} {os.environ.get('ATEN_CPU_CAPABILITY', '')}"
    manifest = sha256((bundle.path / MANIFEST).read_bytes()).hexdigest()
    place = f"{bundle.path.resolve()} {manifest}"
    return {"bundle": place, "dtype": dtype, "threads": str(threads), "device": device}
