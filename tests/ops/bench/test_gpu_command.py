"""`bench gpu` on this CPU, with nothing installed but what a bare machine has."""

import json
import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

from ops.bench import gpu_runs as runs
from ops.harness.output import progress
from ops.harness.prompts import select
from ops.harness.settings import load_config, resolve, with_baseline

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
def test_it_runs_where_only_torch_and_transformers_are(missing, tiny_bundle):
    assert {"ray", "fastapi", "scipy", "sklearn", "onnxruntime"} <= set(missing)
    methods = ["naive", "ngram", "draft_verify", "adaptive"]
    arguments = ["bench", "gpu", "--bundle", str(tiny_bundle.path), "--methods", ",".join(methods)]
    arguments += ["--batches", "3,1", "--exact", "2", "--max-tokens", "12", "--json", "-"]
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(missing=missing, arguments=arguments)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["device"]
    assert figures["exact"] == dict.fromkeys(methods, 1.0)
    for by_batch in (*figures["methods"].values(), *figures["step_ms"].values()):
        assert list(by_batch) == ["1", "3"]
        assert all(value > 0.0 for value in by_batch.values())
    assert figures["hf"]["hf_plain"]["1"] > 0.0
    assert (figures["cuda_graphs"] > 0) == torch.cuda.is_available()


@pytest.mark.slow
async def test_no_method_drafts_from_what_another_has_answered(tiny_bundle, monkeypatch):
    """All are asked the same prompts by one engine, which keeps past answers by scope."""
    answered = []
    decode = runs.decode

    async def noted(engines, request_id, name, token_ids, sampling, *, scope):
        answered.append((name, sampling.max_tokens, scope, request_id))
        return await decode(engines, request_id, name, token_ids, sampling, scope=scope)

    monkeypatch.setattr(runs, "decode", noted)
    methods = "naive,suffix"
    setup = with_baseline(resolve(load_config(None), tiny_bundle.path, methods, "float32", 1))
    plan = runs.Plan(setup, select(None, None, 2, 0), (1, 2), 1, 8, 0.0, 0)
    with progress() as bar:
        await runs.measure(plan, bar)
    assert len({request_id for *_, request_id in answered}) == len(answered)
    by_method = {name: {s for n, _, s, _ in answered if n == name} for name in setup.names}
    assert by_method["naive"].isdisjoint(by_method["suffix"])
    lengths = {
        scope: {tokens for _, tokens, s, _ in answered if s == scope} for *_, scope, _ in answered
    }
    assert all(len(tokens) == 1 for tokens in lengths.values()), "nor from its own warm-up"


@pytest.mark.parametrize("batches", [",", "0", "1,x", "-4"])
def test_wrong_batches_are_named(specadapt, batches):
    line = specadapt.refusal("bench", "gpu", f"--batches={batches}")
    assert "--batches: whole numbers of 1 or more" in line
