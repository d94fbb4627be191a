"""The user's cache folder."""

import os
from pathlib import Path


def user_cache(name: str) -> Path:
    """Return our folder in `$XDG_CACHE_HOME` or ~/.cache; it may not exist yet."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.path.expanduser(cache)) / "specadapt" / name  # noqa: PTH111 - never fails
