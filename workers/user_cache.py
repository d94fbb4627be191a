"""Where this user's machine keeps what can be made again."""

import os
from pathlib import Path


def user_cache(name: str) -> Path:
    """A folder of ours in `$XDG_CACHE_HOME` or ~/.cache; it may not be there yet."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.path.expanduser(cache)) / "specadapt" / name  # noqa: PTH111 - never fails
