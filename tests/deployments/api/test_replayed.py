"""A service that gives recorded answers back: which ones, how slowly, and that it says so."""

import subprocess
import sys
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from recordings import write_profile
from served import METHODS, service_config

from deployments.api.response_headers import REPLAY, ReplayNotice, notice_of
from deployments.app import build
from deployments.artifacts import method_specs, served_table
from deployments.configuration import ConfigError
from schemas import EngineConfig
from workers.methods import get_method

ANSWERS = {"naive": [[30], [31]], "ngram": [[30, 31]]}


@pytest.fixture
def config(tmp_path, tiny_bundle):
    ours = f"{tiny_bundle.name}@{tiny_bundle.content_hash}"
    folder = write_profile(tmp_path / "recording", ANSWERS, bundle=ours)
    replay = {"replay": folder, "replay_slowdown": 3.0}
    return service_config(tmp_path, tiny_bundle, methods=("naive", "ngram"), engine=replay)


def engine(config, **changes):
    return config.model_copy(update={"engine": config.engine.model_copy(update=changes)})


def test_the_configured_methods_are_served_as_recordings_of_themselves(config):
    specs = method_specs(config, ("naive", "ngram"))
    assert [spec.engine for spec in specs] == ["replay", "replay"]
    plain = method_specs(engine(config, replay=None), ("naive", "ngram"))
    assert plain == (get_method("naive"), get_method("ngram"))
    build(config)


def test_the_table_knows_of_the_slowdown(config):
    slow, recorded = served_table(config), served_table(engine(config, replay_slowdown=1.0))
    assert slow.step_seconds == pytest.approx(3 * recorded.step_seconds)
    assert slow.prefill_seconds == pytest.approx(3 * recorded.prefill_seconds)
    real = served_table(engine(config, replay=None))
    assert real.step_seconds == pytest.approx(recorded.step_seconds)


def test_what_was_not_recorded_is_refused_before_anything_starts(config, tmp_path, tiny_bundle):
    with pytest.raises(ConfigError, match=r"profile\.json is missing"):
        build(engine(config, replay=tmp_path))
    (tmp_path / "more").mkdir()
    more = service_config(tmp_path / "more", tiny_bundle, METHODS)
    with pytest.raises(ConfigError, match="the profile to replay has no draft_verify"):
        build(engine(more, replay=config.engine.replay))


def test_every_response_says_that_it_is_a_replay():
    assert notice_of(EngineConfig()) is None
    notice = notice_of(EngineConfig(replay="runs/held", replay_slowdown=8))
    assert notice == "held, slowed down 8 times"
    assert notice_of(EngineConfig(replay="runs/held")) == "held"
    app = FastAPI()
    app.add_middleware(ReplayNotice, notice=notice)
    assert TestClient(app).get("/nowhere").headers[REPLAY] == notice


def test_a_replica_that_replays_loads_no_model_library(config):
    """Eighteen of them would not fit a laptop with torch in each."""
    script = """
import sys
import deployments.replica.method
from deployments.artifacts import method_specs
from schemas import AppConfig
from workers.bundle import load_bundle
from workers.loader import load_engine
config = AppConfig.model_validate_json(sys.argv[1])
load_engine(method_specs(config, ["naive"]), load_bundle(config.bundle), config.engine)
print([name for name in ("torch", "transformers", "sklearn") if name in sys.modules])
"""
    command = [sys.executable, "-c", script, config.model_dump_json()]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=600)
    assert done.stdout.strip() == "[]", done.stderr
