"""What `doctor --gpu-plan` says of three models, from the numbers in their config.json."""

import json
from pathlib import Path

import pytest

MODELS = Path(__file__).parents[2] / "model_configs"
PARAMETERS = {
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "qwen3-30b-a3b": 30_532_122_624,
}
"""As their makers' checkpoints have them."""


@pytest.fixture
def plan(specadapt):
    """The plan of a model on H100s, or on another type."""

    def made(model, *flags, gpu="nvidia-h100"):
        return specadapt.json("doctor", "--gpu-plan", gpu, "--model", MODELS / model, *flags)

    return made


@pytest.mark.parametrize(("model", "gpus"), [("llama-3.1-8b", 1), ("qwen3-30b-a3b", 1)])
def test_a_model_on_one_gpu_has_all_its_parameters_there(plan, model, gpus):
    [engine] = plan(model, "--gpus", gpus)["engines"]
    memory = engine["memory"]
    assert memory["weights"] == 2 * PARAMETERS[model]
    parts = [size for name, size in memory.items() if not name.startswith("kv_")]
    assert sum(parts) + memory["kv_cache"] == plan(model)["bytes"]
    assert engine["arguments"]["max_model_len"] <= memory["kv_tokens"]


@pytest.mark.parametrize(
    ("model", "gpus"), [("llama-3.1-8b", 1), ("qwen3-30b-a3b", 2), ("llama-3.1-70b", 4)]
)
def test_an_engine_spans_the_fewest_gpus_that_hold_full_batches(plan, model, gpus):
    found = plan(model)
    [engine] = found["engines"]
    assert (found["gpus"], engine["gpus"], engine["replicas"]) == ([gpus, gpus], gpus, [1, 1])
    assert engine["arguments"].get("tensor_parallel_size", 1) == gpus
    assert len(engine["placement"].get("placement_group_bundles", [0])) == gpus
    assert plan(model, "--gpus", 8)["engines"][0]["replicas"] == [1, 8 // gpus]


def test_drafters_are_methods_with_weights_and_kv(plan):
    draft = f"draft={MODELS / 'llama-3.2-1b'}"
    eagle3 = f"eagle3={MODELS / 'eagle3-llama-3.1-8b'}"
    [alone] = plan("llama-3.1-8b")["engines"]
    [engine] = plan("llama-3.1-8b", "--speculator", draft, "--speculator", eagle3)["engines"]
    assert engine["methods"] == [*alone["methods"], "vllm_draft", "vllm_eagle3"]
    assert engine["memory"]["draft"] == 2 * 1_235_814_400
    assert alone["memory"]["kv_bytes_per_token"] == 32 * 2 * 8 * 128 * 2
    kv = engine["memory"]["kv_bytes_per_token"] - alone["memory"]["kv_bytes_per_token"]
    assert kv == 16 * 2 * 8 * 64 * 2 + 2 * 8 * 128 * 2


def test_a_configuration_says_what_is_started(plan, tmp_path):
    methods = [
        {"name": "vllm_naive", "num_gpus": 0.5, "accelerator_type": "L4"},
        {"name": "vllm_ngram", "num_gpus": 1, "max_replicas": 3},
    ]
    engine = {"max_context": 1024, "vllm": {"enforce_eager": True, "kv_cache_dtype": "fp8"}}
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps({"methods": methods, "engine": engine}))
    found = plan("llama-3.1-8b", "--config", file)
    assert [one["methods"] for one in found["engines"]] == [["vllm_ngram"]], "no L4"
    assert found["gpus"] == [1, 3]
    [ngram] = found["engines"]
    assert ngram["cudagraph_mode"] == "NONE"
    assert ngram["memory"]["kv_bytes_per_token"] == 32 * 2 * 8 * 128


def test_what_cannot_be_planned_is_refused(specadapt, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    small, large = MODELS / "llama-3.1-8b", MODELS / "llama-3.1-70b"
    quantised = json.loads((small / "config.json").read_text())
    quantised["quantization_config"] = {"quant_method": "fp8"}
    (tmp_path / "config.json").write_text(json.dumps(quantised))
    for said, *flags in (
        ("nvidia-h1 is unknown: choose from nvidia-a100", "--gpu-plan", "nvidia-h1", small),
        ("KV of 0 tokens, not 8,192: give more --gpus", "--gpus", 1, large),
        ("no-such/model is no file or folder here and cannot be", "--model", "no-such/model"),
        ("medusa: its memory cannot be planned", "--speculator", f"medusa={small}", small),
        ("16 and 32 bits, not quantised", tmp_path),
    ):
        planned = [] if "--gpu-plan" in flags else ["--gpu-plan", "nvidia-h100"]
        assert said in specadapt.refusal("doctor", *planned, *flags)
    assert "give --gpu-plan too" in specadapt.refusal("doctor", "--gpus", 2)
