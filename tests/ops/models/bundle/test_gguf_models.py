"""GGUF files of every architecture that is read: the imported model is the one that was written."""

import copy
import math
from types import SimpleNamespace

import gguf
import numpy as np
import pytest
import torch
from conftest_bundle import random_llama
from gguf_writer import given, write_gguf
from hypothesis import given as drawn
from hypothesis.extra.numpy import arrays
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from ops.models.bundle.gguf_weights import read_groups
from tests.zoo import OURS
from workers.bundle import load_bundle, read_json
from workers.torch_engine.models.weights import unpacked
from workers.weight_files import PACKED

IDS = torch.arange(3, 123)[None]
"""Longer than every window and every original context of these models."""


def test_yarn_has_the_settings_of_the_file(specadapt, tokenizer, tmp_path):
    """llama.cpp multiplies its own factor with 0.1 ln(factor) + 1."""
    scaling = "llama.rope.scaling."
    fields = {f"{scaling}yarn_beta_fast": 16.0, f"{scaling}attn_factor": 0.5}
    model = random_like("llama-yarn", tokenizer)
    write_gguf(tmp_path / "some.gguf", model, tokenizer, change=given(fields))
    specadapt.json("bundle", "import", tmp_path / "some.gguf", "--out", tmp_path / "out")
    rope = read_json(tmp_path / "out" / "target" / "config.json")["rope_parameters"]
    assert rope["attention_factor"] == pytest.approx(0.5 * (0.1 * math.log(4.0) + 1.0))
    assert (rope["beta_fast"], rope["factor"]) == (16.0, 4.0)
    assert rope["original_max_position_embeddings"] == 32


def random_like(name, tokenizer):
    config = copy.deepcopy(OURS[name])
    config.vocab_size, config.eos_token_id = len(tokenizer), tokenizer.eos_token_id
    if name.startswith("gemma"):  # what llama.cpp knows of it without a field
        config.query_pre_attn_scalar = config.head_dim
    if name == "gemma3":
        config.num_hidden_layers = 7
        config.layer_types = [*["sliding_attention"] * 5, "full_attention", "sliding_attention"]
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_((weight + torch.randn_like(weight) * 0.02).bfloat16())
    return model.eval()


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("gemma2", "gemma2.attn_logit_softcapping"),
        ("gemma2", "gemma2.final_logit_softcapping"),
        ("gemma2", "gemma2.attention.sliding_window"),
        ("gemma3", "gemma3.attention.sliding_window"),
    ],
)
def test_what_a_family_cannot_do_without_is_required(specadapt, tokenizer, tmp_path, name, key):
    model, change = random_like(name, tokenizer), given({key: None})
    write_gguf(tmp_path / "some.gguf", model, tokenizer, change=change)
    said = specadapt.refusal("bundle", "import", tmp_path / "some.gguf", "--out", tmp_path / "out")
    assert f"{key} is missing" in said


@pytest.mark.parametrize(
    "name",
    [
        *("llama", "llama-linear", "llama-yarn", "llama-llama3", "qwen2", "qwen3", "phi3"),
        *("gemma2", "gemma3"),
    ],
)
def test_the_imported_model_is_the_one_that_was_written(specadapt, tokenizer, tmp_path, name):
    model = random_like(name, tokenizer)
    write_gguf(tmp_path / "some.gguf", model, tokenizer)
    made = specadapt.json("bundle", "import", tmp_path / "some.gguf", "--out", tmp_path / "out")
    assert made["forward"] == "our own forward"
    imported = AutoModelForCausalLM.from_pretrained(
        load_bundle(tmp_path / "out").part("target"),
        dtype=torch.float32,
        attn_implementation="eager",
    )
    model.set_attn_implementation("eager")
    with torch.no_grad():
        theirs, ours = model(IDS).logits, imported(IDS).logits
    # norms with an offset are rounded once more, in the file's sum
    torch.testing.assert_close(
        ours, theirs, atol=0.03 if name.startswith("gemma") else 1e-4, rtol=0
    )


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1"])
def test_four_bit_weights_are_kept_as_they_are(specadapt, tokenizer, tmp_path, kind):
    quantisation = gguf.GGMLQuantizationType[kind]
    file, out = tmp_path / "some.gguf", tmp_path / "out"
    torch.manual_seed(0)
    model = random_llama(vocab=len(tokenizer), eos=tokenizer.eos_token_id, kv_heads=2)
    write_gguf(file, model, tokenizer, quantisation)
    specadapt.json("bundle", "import", file, "--out", out)
    folder = load_bundle(out).part("target")
    weights, packed = load_file(folder / "model.safetensors"), load_file(folder / PACKED)
    assert {name for name, weight in weights.items() if weight.ndim == 2} == packed.keys()
    for name, weight in packed.items():
        assert torch.equal(unpacked(weight), weights[name])
    name = "model.layers.1.mlp.up_proj.weight"
    original = model.state_dict()[name].numpy()
    expected = gguf.dequantize(gguf.quantize(original, quantisation), quantisation)
    assert torch.equal(weights[name], torch.from_numpy(expected).bfloat16())


@pytest.mark.parametrize(("kind", "compact"), [("Q8_0", True), ("F16", False)])
def test_more_than_four_bits_are_served_in_eight(specadapt, tokenizer, tmp_path, kind, compact):
    model = random_llama(vocab=len(tokenizer), eos=tokenizer.eos_token_id, kv_heads=2)
    write_gguf(tmp_path / "some.gguf", model, tokenizer, gguf.GGMLQuantizationType[kind])
    specadapt.json("bundle", "import", tmp_path / "some.gguf", "--out", tmp_path / "out")
    file = load_bundle(tmp_path / "out").part("target") / PACKED
    assert file.is_file() == compact
    assert not compact or load_file(file) == {}


@drawn(data=arrays(np.uint8, (3, 2 * 144)))
def test_groups_of_k_quants_are_those_that_gguf_dequantises(data):
    data.reshape(-1, 144)[:, :4] = np.array([0.5, 0.25], np.float16).view(np.uint8)
    kind = gguf.GGMLQuantizationType.Q4_K
    codes, scale, offset = read_groups(SimpleNamespace(tensor_type=kind, data=data))
    values = codes.reshape(3, -1, 32) * scale[..., None] + offset[..., None]
    np.testing.assert_array_equal(values.reshape(3, -1), gguf.dequantize(data, kind))
