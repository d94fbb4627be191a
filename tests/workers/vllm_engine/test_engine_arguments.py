"""The arguments of vLLM's engine by the device, and what is refused."""

import pytest

from schemas import EngineConfig
from workers.bundle import Bundle
from workers.methods import get_method
from workers.vllm_engine.arguments import CPU_BLOCK, CPU_CHUNK, engine_arguments

CPU = EngineConfig(device="cpu", max_batch=4, kv_slots=1024)


@pytest.fixture(params=[True, False])
def computes_bfloat16(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr("workers.cpu_arithmetic.computes_bfloat16", lambda: request.param)
    return bool(request.param)


def of(bundle: Bundle, config: EngineConfig, method: str = "vllm_naive") -> dict[str, object]:
    return engine_arguments([get_method(method)], bundle, config)


def test_auto_is_the_dtype_that_the_cpu_computes_in(bundle, computes_bfloat16) -> None:
    dtype = "bfloat16" if computes_bfloat16 else "float32"
    by_name = of(bundle, CPU.model_copy(update={"dtype": dtype}))
    assert of(bundle, CPU) == by_name, "the KV cache's bytes included"
    assert by_name["dtype"] == dtype


@pytest.mark.usefixtures("computes_bfloat16")
def test_a_gpu_and_a_named_dtype_are_left_alone(bundle) -> None:
    gpu = of(bundle, EngineConfig(device="cuda"))
    assert (gpu["dtype"], "max_num_batched_tokens" in gpu) == ("bfloat16", False)
    named = of(bundle, CPU.model_copy(update={"dtype": "bfloat16"}))
    assert named["dtype"] == "bfloat16"
    assert named["num_gpu_blocks_override"] == 1024 // CPU_BLOCK


def test_a_step_on_a_cpu_has_room_for_every_draft_and_a_piece_of_a_prompt(bundle) -> None:
    assert of(bundle, CPU)["max_num_batched_tokens"] == CPU_CHUNK + 4
    assert of(bundle, CPU, "vllm_ngram")["max_num_batched_tokens"] == CPU_CHUNK + 4 * (1 + 8)
    for vllm, expected in (
        ({"max_num_batched_tokens": 48}, 48),
        ({"enable_chunked_prefill": False}, None),
    ):
        settings = of(bundle, CPU.model_copy(update={"vllm": vllm}))
        assert settings.get("max_num_batched_tokens") == expected
