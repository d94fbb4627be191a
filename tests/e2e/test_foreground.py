"""`specadapt serve` in the foreground: it answers without its store, and Ctrl-C leaves nothing."""

import os
import re
import signal
import subprocess
import sys

import psutil
import pytest
import yaml
from running_service import HTTP, START_SECONDS, until
from served import service_config

SERVE = [sys.executable, "-m", "ops", "serve", "--config"]


@pytest.fixture
def config_file(tiny_bundle, tmp_path):
    config = service_config(tmp_path, tiny_bundle, ("naive",), http={"port": 0})
    (tmp_path / "occupied").write_text("no folder can be made here")
    store = config.feedback.model_copy(update={"state_uri": str(tmp_path / "occupied" / "state")})
    config = config.model_copy(update={"feedback": store})
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    return file


def alive(processes):
    """Those that live, zombies apart."""
    living = [one for one in processes if one.is_running()]
    return [one for one in living if one.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.slow
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all_that_was_started(config_file, tmp_path, signal_number):
    log = tmp_path / "serve.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*SERVE, str(config_file)], stdout=output, stderr=output, start_new_session=True
        )
    started = []
    try:
        said = until(
            lambda: process.poll() is not None or re.search(r"API base +(\S+)", log.read_text()),
            START_SECONDS,
        )
        assert process.poll() is None, log.read_text()
        assert HTTP.get(f"{said[1]}/models").json()["data"][0]["id"] == "tiny"
        assert HTTP.get(said[1].replace("/v1", "/health")).status_code == 200
        # The ingress is ready before it has heard from the feedback actor.
        routing = f"{said[1]}/routing"
        until(
            lambda: "occupied/state" in HTTP.get(routing).json()["feedback"]["problem"],
            START_SECONDS,
        )
        exported = until(lambda: re.search(r"metrics +(\S+)", log.read_text()))[1]
        until(
            lambda: "ray_specadapt_observations_waiting" in HTTP.get(exported).text,
            START_SECONDS,
        )
        started = psutil.Process(process.pid).children(recursive=True)
        assert len(started) > 4
        assert {one.nice() for one in started} == {os.nice(0)}, "none yields to other programs"
        # A terminal sends Ctrl-C to the whole foreground group, Ray's processes included.
        os.killpg(process.pid, signal_number)
        assert process.wait(START_SECONDS) == 0, log.read_text()
        until(lambda: not alive(started), START_SECONDS)
        assert "Traceback" not in log.read_text()
    finally:
        for one in alive(started):
            one.kill()
        process.kill()
