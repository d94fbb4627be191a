"""`bench decode` with nothing installed but what a bare machine with torch has."""

import json
import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

BARE = ("torch", "transformers", "safetensors", "pydantic")
OURS = "specadapt"
RUN = """
import sys
for name in {missing}:
    sys.modules[name] = None
from ops.main import main
sys.argv = ["specadapt", *{arguments}]
main()
"""


def with_requirements(names):
    """The distributions and all that they require, in their canonical spelling."""
    found, new = set(), set(names)
    while new:
        found |= new
        wanted = [Requirement(line) for name in new for line in requires(name) or ()]
        needed = [one for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
        new = {one.name.lower().replace("_", "-") for one in needed} - found
    return found


@pytest.fixture(scope="module")
def missing():
    """Packages that are installed here and would not be there."""
    bare = with_requirements(BARE) | {OURS}
    installed = {
        name: {owner.lower().replace("_", "-") for owner in owners}
        for name, owners in packages_distributions().items()
    }
    return [name for name, owners in installed.items() if not owners & bare and name.isidentifier()]


@pytest.mark.slow
def test_it_runs_where_only_torch_and_transformers_are(missing, tiny_bundle, prompts_file):
    assert {"ray", "fastapi", "scipy", "sklearn", "onnxruntime", "psutil"} <= set(missing)
    arguments = ["bench", "decode", "--bundle", str(tiny_bundle.path), "--json", "-", "--quality"]
    arguments += ["--methods", "naive,ngram,draft_verify,adaptive", "--prompts", str(prompts_file)]
    arguments += ["--limit", "2", "--repeats", "1", "--max-tokens", "12", "--dtype", "float32"]
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(missing=missing, arguments=arguments)],
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    for method in figures["methods"].values():
        assert method["match_rate"] == 1.0
        assert method["verify_s"] > 0.0
    assert figures["quality"]["methods"]["adaptive"]["excess_nats"] == pytest.approx(0.0, abs=1e-3)
