"""What measures methods measures vLLM's like any other: on the demo bundle, in float32."""

import json
import os
import time
from pathlib import Path

import pytest
from conftest_bundle import DEMO
from typer.testing import CliRunner

from ops.harness.decoding import decode
from ops.harness.engines import POLLING_SECONDS, engines_of
from ops.harness.settings import Setup
from ops.main import app
from schemas import EngineConfig, SamplingParams, VllmConfig
from workers.bundle import load_bundle
from workers.methods import get_method

pytestmark = pytest.mark.vllm

ENGINE = EngineConfig(
    device="cpu",
    dtype="float32",
    max_batch=4,
    max_context=512,
    kv_slots=4096,
    vllm=VllmConfig(enforce_eager=True),
)
TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module", autouse=True)
def installed():
    pytest.importorskip("vllm", reason="vLLM is not installed: make test-vllm")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"engine": ENGINE.model_dump(mode="json")}))
    return file


def figures(*arguments: object):
    """What `--json -` prints: the whole of standard output has to be JSON."""
    result = CliRunner().invoke(app, [*map(str, arguments), "--json", "-"])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def descendants(pid: int) -> set[int]:
    """The processes that a process has started, and those they have."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found |= {child} | descendants(child)
    return found


def cpu_seconds(pids: set[int]) -> float:
    """What the processes have computed so far."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(f[11]) + int(f[12]) for f in fields) / TICKS


def spent(pids: set[int], seconds: float) -> float:
    """What they compute in the next seconds, which are the measurement."""
    before = cpu_seconds(pids)
    time.sleep(seconds)
    return cpu_seconds(pids) - before


def test_both_engines_stand_in_one_table(config):
    found = figures(
        *["bench", "decode", "--config", config, "--bundle", DEMO, "--limit", 4],
        *["--methods", "ngram,vllm_naive,vllm_ngram", "--repeats", 1, "--max-tokens", 24],
    )
    assert list(found["methods"]) == ["naive", "ngram", "vllm_naive", "vllm_ngram"]
    assert found["settings"]["baseline"] == "naive"
    for name, method in found["methods"].items():
        assert method["match_rate"] == 1.0, (name, method["divergences"])
        assert method["speedup_vs_hf"] > 0
    methods = found["methods"]
    assert methods["vllm_naive"]["speedup_vs_vllm_naive"] == pytest.approx(1.0)
    assert methods["vllm_naive"]["mat"] == pytest.approx(1.0)
    assert methods["vllm_ngram"]["mat"] == pytest.approx(methods["ngram"]["mat"], rel=0.3)


async def test_an_engine_that_has_nothing_to_do_sleeps():
    before = descendants(os.getpid())
    setup = Setup(DEMO, (get_method("vllm_naive"), get_method("naive")), ENGINE)
    with engines_of(setup, load_bundle(DEMO), "test") as engines:
        started = descendants(os.getpid()) - before
        await decode(engines, "a", "vllm_naive", [1, 2, 3], SamplingParams(max_tokens=8))
        ended = time.monotonic()
        await engines.others_asleep("vllm_naive")
        assert time.monotonic() - ended < 0.5 * POLLING_SECONDS
        await engines.others_asleep("naive")
        assert time.monotonic() - ended >= 0.9 * POLLING_SECONDS
        assert spent(started, 2.0) < 0.2
    assert not descendants(os.getpid()) - before


@pytest.mark.slow
def test_the_service_is_compared_with_vllms_own_server(config):
    found = figures(
        *["bench", "http", "--config", config, "--bundle", DEMO, "--method", "vllm_ngram"],
        *["--against", "vllm serve", "--limit", 4, "--max-tokens", 16, "--concurrency", 2],
    )
    assert found["errors"] == found["against"]["errors"] == 0
    assert found["methods"] == {"vllm_ngram": 4}
    assert found["same_answers"] == 1.0
    assert found["ratio"]["tokens_per_s"] > 0
    assert "--speculative-config" in found["against"]["command"]
