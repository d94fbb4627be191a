"""Benchmarks measure vLLM's methods like all others."""

import inspect
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest_bundle import DEMO
from typer.testing import CliRunner

from ops.common import decoding
from ops.common.decoding import POLLING_SECONDS, decode, engines_of
from ops.common.settings import Setup
from ops.main import app
from schemas import EngineConfig, SamplingParams
from workers.bundle import load_bundle
from workers.methods import get_method

pytestmark = pytest.mark.vllm

ENGINE = EngineConfig(
    device="cpu",
    dtype="float32",
    max_batch=4,
    max_context=512,
    kv_slots=4096,
    vllm={"enforce_eager": True},
)


@pytest.fixture(scope="module", autouse=True)
def installed():
    pytest.importorskip("vllm", reason="vLLM is not installed: make test-vllm")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"engine": ENGINE.model_dump(mode="json")}))
    return file


def figures(*arguments: object):
    """Return what `--json -` prints. The whole of standard output must be JSON."""
    result = CliRunner().invoke(app, [*map(str, arguments), "--json", "-"])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.slow
def test_both_engines_stand_in_one_table(config):
    found = figures(
        *["bench", "decode", "--config", config, "--bundle", DEMO, "--limit", 4],
        *["--methods", "ngram,vllm_naive,vllm_ngram", "--repeats", 1, "--max-tokens", 24],
    )
    assert list(found["methods"]) == ["naive", "ngram", "vllm_naive", "vllm_ngram"]
    assert found["settings"]["baseline"] == "naive"
    for name, method in found["methods"].items():
        assert method["match_rate"] == 1.0, (name, method["divergences"])
        assert method["over"]["hf"]["speedup"] > 0
    methods = found["methods"]
    assert methods["vllm_naive"]["over"]["vllm_naive"]["speedup"] == pytest.approx(1.0)
    assert methods["vllm_naive"]["mat"] == pytest.approx(1.0)
    assert methods["vllm_ngram"]["mat"] == pytest.approx(methods["ngram"]["mat"], rel=0.3)


def test_we_wait_as_long_as_vllms_processes_poll() -> None:
    from vllm.distributed.device_communicators.shm_broadcast import SpinCondition

    parameters = inspect.signature(SpinCondition.__init__).parameters
    assert parameters["busy_loop_s"].default == POLLING_SECONDS


@pytest.mark.slow
async def test_only_the_other_engines_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    slept = list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    setup = Setup(DEMO, (get_method("vllm_naive"), get_method("naive")), ENGINE)
    with engines_of(setup, load_bundle(DEMO), "test") as engines:
        await decode(engines, "a", "vllm_naive", [1, 2, 3], SamplingParams(max_tokens=8))
        monkeypatch.setattr(decoding, "time", SimpleNamespace(monotonic=lambda: 0.0))
        monkeypatch.setattr(decoding, "asyncio", SimpleNamespace(sleep=sleep))
        await engines.others_asleep("vllm_naive")
        await engines.others_asleep("naive")
    assert slept[0] < 0.0 < slept[1]
