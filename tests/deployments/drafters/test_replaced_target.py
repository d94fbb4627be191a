"""The drafters' actor ends when its bundle gets another target in place."""

import json
import os
import shutil
from pathlib import Path

import pytest

from deployments.drafters import actor
from deployments.drafters.actor import DraftersActor
from schemas import AppConfig, FeedbackConfig, MethodDeployment
from workers.bundle import Bundle
from workers.target_hash import target_hash


class EndedError(Exception):
    """The process would have ended."""


def test_the_actor_starts_again_with_another_target(
    tiny_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(_: int) -> None:
        raise EndedError

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(actor, "TARGET_SECONDS", 0.0)
    copy = shutil.copytree(tiny_bundle.path, tmp_path / "copy")
    looking = object.__new__(DraftersActor)  # without its threads
    looking._config = AppConfig(
        bundle=copy,
        methods=(MethodDeployment(name="naive"),),
        feedback=FeedbackConfig(state_uri=str(tmp_path / "state")),
    )
    looking._target, looking._next_look = target_hash(tiny_bundle), 0.0
    looking._end_with_the_target()
    config = copy / "target" / "config.json"
    whole = config.read_text()
    (copy / "bundle.json").rename(copy / "away")
    looking._end_with_the_target()
    (copy / "away").rename(copy / "bundle.json")
    config.write_text(json.dumps(json.loads(whole) | {"rms_norm_eps": 0.5}))
    with pytest.raises(EndedError):
        looking._end_with_the_target()
