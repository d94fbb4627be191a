"""The keys by which `bench routed` tells its arms apart."""

from pathlib import Path

from deployments.guard.key_file import KeyFile, scope_of
from ops.bench.routed.arm_keys import kept_apart, new_keys
from schemas import AppConfig


def test_no_arm_shares_its_past_answers() -> None:
    keys = new_keys(("routed", "naive"))
    with kept_apart(AppConfig(), keys) as config:
        guard = config.http.guard
        assert isinstance(guard.keys_file, Path)
        known = KeyFile(guard.keys_file)
        found = [known.find(key) for key in keys.values()]
        scopes = {scope_of(key, guard.isolation) for key in found if key is not None}
        assert len(scopes) == len(keys)
        assert "" not in scopes
    assert not guard.keys_file.exists()
