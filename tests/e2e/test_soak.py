"""`bench soak` as a command: half a minute on a service of tiny models."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from served import service_config

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def test_half_a_minute(tiny_bundle, tmp_path):
    config = service_config(tmp_path, tiny_bundle, ("naive", "ngram"))
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    command = [
        *[sys.executable, "-m", "ops", "bench", "soak", "--json", "-", "--config", file],
        *["--bundle", tiny_bundle.path, "--rate", 4, "--minutes", 0.5, "--warm-up", 0.1],
        *["--every", 2, "--max-tokens", 40],
    ]
    done = subprocess.run(
        [str(part) for part in command], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["outcomes"] == {"streamed": 72, "left": 24, "whole": 24}
    roles = {row["role"] for row in figures["processes"]}
    assert roles == {"controller", "proxy", "feedback", "ingress", "naive", "ngram"}
    before, after = figures["idle"]["tasks"]
    assert before == after
    before, after = figures["idle"]["processes"]
    assert before == after
