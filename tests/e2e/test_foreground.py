"""`specadapt serve` in the foreground: it answers without its store, and Ctrl-C leaves nothing."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

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


def descendants(pid):
    """Every living process that descends from `pid`, with its command."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] != "Z":
            parents[int(status.parent.name)] = int(fields[1])
    found, added = {pid}, True
    while added:
        new = {child for child, parent in parents.items() if parent in found} - found
        found, added = found | new, bool(new)
    return found - {pid}


def alive(pids):
    return {pid for pid in pids if pid in descendants(os.getpid()) | descendants(1)}


@pytest.mark.slow
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all_that_was_started(config_file, tmp_path, signal_number):
    log = tmp_path / "serve.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*SERVE, str(config_file)], stdout=output, stderr=output, start_new_session=True
        )
    started = set()
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
        started = descendants(process.pid)
        assert len(started) > 4
        # A terminal sends Ctrl-C to the whole foreground group, Ray's processes included.
        os.killpg(process.pid, signal_number)
        assert process.wait(START_SECONDS) == 0, log.read_text()
        until(lambda: not alive(started), START_SECONDS)
        assert "Traceback" not in log.read_text()
    finally:
        for pid in {process.pid, *alive(started)} if process.poll() is None else alive(started):
            os.kill(pid, signal.SIGKILL)
