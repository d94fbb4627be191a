"""`bench gpu --vllm`: which engines it compares, and what can run of it on a CPU."""

import json
import os
from io import StringIO

import pytest
from conftest_bundle import DEMO
from rich.console import Console
from typer.testing import CliRunner

from ops.bench import gpu, gpu_vllm
from ops.harness.output import progress
from ops.harness.prompts import select
from ops.harness.settings import load_config, resolve
from ops.main import app

RUNNER = "VLLM_USE_V2_MODEL_RUNNER"
METHODS = "vllm_naive,vllm_ngram,vllm_medusa,vllm_eagle3,vllm_adaptive"


async def test_a_group_that_fails_leaves_the_others(monkeypatch):
    """Each group has vLLM's variable for its runner and its methods; the engines are stand-ins."""
    ran = []

    async def exactness(plan, *_):
        assert plan.setup.engine.vllm.enforce_eager
        return dict.fromkeys(plan.setup.names, 1.0)

    async def speeds(plan, *_):
        ran.append((os.environ.get(RUNNER), plan.setup.shared, plan.setup.names))
        if os.environ.get(RUNNER) == "1":
            raise RuntimeError("out of memory")
        return {}, {name: {} for name in plan.setup.names}, 0

    monkeypatch.setenv(RUNNER, "before")
    monkeypatch.setattr(gpu_vllm, "exactness", exactness)
    monkeypatch.setattr(gpu_vllm, "speeds", speeds)
    setup = resolve(load_config(None), DEMO, METHODS, "float32", 1)
    plan = gpu_vllm.Plan(setup, select(None, None, 2, 0), (1,), 1, 8, 0.0, 0)
    with progress() as bar:
        found = (await gpu_vllm.measure_vllm(plan, bar))["groups"]
    assert ran == [
        ("0", True, METHODS.split(",")),
        ("1", True, ["vllm_naive", "vllm_ngram", "vllm_eagle3"]),
        (None, False, ["vllm_naive"]),
        (None, False, ["vllm_ngram"]),
        (None, False, ["vllm_eagle3"]),
    ]
    assert os.environ[RUNNER] == "before"
    assert found["shared, second runner"]["error"] == "RuntimeError: out of memory"
    assert found["shared, first runner"]["exact"]["vllm_adaptive"] == 1.0
    assert list(found["vLLM's eagle3"]["methods"]) == ["vllm_eagle3"]
    Console(file=(shown := StringIO()), width=200).print(*group_tables(found))
    assert "out of memory" in shown.getvalue()


def group_tables(groups):
    return gpu._group_tables({"device": "a stand-in", "groups": groups}, (1,))


def test_our_own_methods_are_refused(specadapt):
    line = specadapt.refusal("bench", "gpu", "--vllm", f"--bundle={DEMO}", "--methods=naive,ngram")
    assert "--vllm: --methods may name vLLM's methods only" in line


@pytest.mark.slow
@pytest.mark.vllm
def test_the_first_runner_and_vllms_own_are_measured_on_a_cpu(tmp_path):
    pytest.importorskip("vllm", reason="vLLM is not installed: make test-vllm")
    eager = tmp_path / "eager.yaml"
    eager.write_text("engine: {threads: 1, dtype: float32, vllm: {enforce_eager: true}}")
    arguments = ["bench", "gpu", "--vllm", "--bundle", str(DEMO), "--config", str(eager)]
    arguments += ["--methods", "vllm_naive,vllm_eagle3,vllm_adaptive", "--json", "-"]
    arguments += ["--batches", "1,2", "--exact", "2", "--max-tokens", "16"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.stderr
    groups = json.loads(result.stdout)["groups"]
    first = groups["shared, first runner"]
    assert set(first["exact"].values()) == {1.0}
    for name in ("shared, first runner", "vLLM's none", "vLLM's eagle3"):
        assert "error" not in groups[name]
        for by_batch in groups[name]["methods"].values():
            assert list(by_batch) == ["1", "2"]
            assert all(value > 0.0 for value in by_batch.values())
    assert "Triton" in groups["shared, second runner"]["error"], "docs/vllm-shared.md says so"
