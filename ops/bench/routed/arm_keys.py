"""API keys of a service's own, one for each way it is asked, so that no answer helps another's."""

import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from deployments.guard.key_file import hash_of
from schemas import AppConfig, GuardConfig
from schemas.keys import ApiKey, KeyRing


def new_keys(arms: tuple[str, ...]) -> dict[str, str]:
    """A key for each arm."""
    return {arm: f"sk-{secrets.token_urlsafe(32)}" for arm in arms}


@contextmanager
def kept_apart(config: AppConfig, keys: Mapping[str, str]) -> Iterator[AppConfig]:
    """The configuration of a service that knows these keys alone, and drafts the answers of one
    from none of another's."""
    ring = KeyRing(keys=tuple(ApiKey(name=n, sha256=hash_of(key)) for n, key in keys.items()))
    with tempfile.TemporaryDirectory(prefix="specadapt-") as folder:
        file = Path(folder) / "keys.json"
        file.write_text(ring.model_dump_json(), encoding="utf-8")
        guard = GuardConfig(keys_file=file, isolation="key")
        http = config.http.model_copy(update={"guard": guard})
        yield config.model_copy(update={"http": http})
