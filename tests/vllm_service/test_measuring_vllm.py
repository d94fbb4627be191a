"""Benchmarks measure vLLM's methods like all others."""

import inspect
from types import SimpleNamespace

import pytest
from conftest_bundle import DEMO

from ops.common import decoding
from ops.common.decoding import POLLING_SECONDS, answer_to, engines_of, request_of
from ops.common.settings import Setup
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
        request = request_of("a", "vllm_naive", [1, 2, 3], SamplingParams(max_tokens=8))
        await answer_to(engines, request)
        monkeypatch.setattr(decoding, "time", SimpleNamespace(monotonic=lambda: 0.0))
        monkeypatch.setattr(decoding, "asyncio", SimpleNamespace(sleep=sleep))
        await engines.others_asleep("vllm_naive")
        await engines.others_asleep("naive")
    assert slept[0] < 0.0 < slept[1]
