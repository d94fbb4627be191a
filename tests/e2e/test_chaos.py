"""`bench chaos` as a command: two faults on a service of tiny models."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from served import service_config

ROOT = Path(__file__).parents[2]

# Two minutes: a service of its own, and what is killed has to start again.
pytestmark = pytest.mark.slow


def test_a_replica_and_the_feedback_actor_are_killed(tiny_bundle, tmp_path):
    config = service_config(tmp_path, tiny_bundle, ("naive", "ngram"))
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    command = [
        *[sys.executable, "-m", "ops", "bench", "chaos", "--json", "-"],
        *["--fault", "replica", "--fault", "feedback", "--config", file],
        *["--bundle", tiny_bundle.path, "--rate", 4, "--quiet", 3, "--max-tokens", 100],
    ]
    done = subprocess.run(
        [str(part) for part in command], cwd=ROOT, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    replica, feedback = json.loads(done.stdout)["faults"]
    assert replica["befell"] in ("naive", "ngram")
    for fault in (replica, feedback):
        assert fault["requests_before"] == fault["answered_before"] > 0
        assert fault["requests"] == fault["answered"] + fault["broken_off"] > 0
        assert fault["service_recovered_s"] > 0.0
        assert fault["observations_acknowledged"] > 0
        assert fault["acknowledged_lost"] == fault["never_counted"] == 0
    assert feedback["broken_off"] == 0
