"""Hugging Face folders whose files are not a whole model: each is refused, nothing stays."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from spoiling import (
    INDEX,
    POINTER,
    SECOND,
    WEIGHTS,
    both,
    config,
    cut,
    fields,
    removed,
    replaced,
    sharded,
    tensors,
    text,
    without,
)

from workers.bundle import load_bundle

GENERATION = "generation_config.json"
UP, DOWN = "model.layers.0.mlp.up_proj.weight", "model.layers.1.mlp.down_proj.weight"


def elsewhere(file):
    """An index that says where a weight is that the first shard has."""
    weight_map = {"model.embed_tokens.weight": file}
    return both(sharded, text(INDEX, json.dumps({"weight_map": weight_map})))


def not_a_number(weights):
    weights[DOWN][0, 0] = torch.nan


def overflowing(weights):
    for name in ("model.norm.weight", "model.layers.0.input_layernorm.weight"):
        weights[name].fill_(3e38)


def few_embeddings(weights):
    weights["model.embed_tokens.weight"] = weights["model.embed_tokens.weight"][:100].clone()


def quantised_to(dtype):
    return lambda weights: weights.update({UP: (weights[UP] * 100).to(dtype)})


def end(eos):
    return both(config(eos_token_id=eos), removed(GENERATION))


NOT_WHOLE = "model.safetensors is not a whole safetensors file"
NO_INDEX = "model.safetensors.index.json is missing"
REFUSED = {
    "no weights": (removed(WEIGHTS), "no *.safetensors"),
    "no shard": (both(sharded, removed(SECOND)), f"{SECOND} is missing"),
    "no index": (both(sharded, removed(INDEX)), NO_INDEX),
    "index elsewhere": (elsewhere(SECOND), f"is not in {SECOND}"),
    "index outside": (
        elsewhere("../model.safetensors"),
        "'weight_map' must map tensors to files in this folder",
    ),
    "cut off": (cut(WEIGHTS, -100), NOT_WHOLE),
    "pointer": (
        text(WEIGHTS, POINTER),
        "model.safetensors is a Git LFS pointer, not the file: run `git lfs pull`",
    ),
    "tokenizer": (text("tokenizer.json", '{"version": "1.0"}'), "the tokenizer in"),
    "config": (text("config.json", '{"model_type": "llama"'), "config.json is not JSON"),
    "no model type": (text("config.json", "{}"), "config.json"),
    "untied": (config(tie_word_embeddings=False), "the weights lack lm_head.weight"),
    "another width": (config(intermediate_size=96), "mlp."),
    "biases": (
        tensors(replaced("model.layers.0.self_attn.q_proj.bias", 64)),
        "does not have model.layers.0.self_attn.q_proj.bias",
    ),
    "not a number": (tensors(not_a_number), f"{DOWN} holds NaN"),
    "overflowing": (tensors(overflowing), "the model does not decode"),
    "few embeddings": (
        both(tensors(few_embeddings), config(vocab_size=100)),
        "the model's vocab_size is 100",
    ),
    "end beyond": (end(99_999), "eos_token_id is 99999"),
    "end in words": (end("</s>"), "eos_token_id is '</s>': expected token ids"),
    "odd end": (
        text(GENERATION, '{"eos_token_id": {"id": 1}}'),
        "generation_config.json: eos_token_id is {'id': 1}",
    ),
    "not a weights file": (text(WEIGHTS, "{}" * 99), NOT_WHOLE),
    "int8": (tensors(quantised_to(torch.int8)), "mlp.up_proj.weight is quantised as I8"),
    "no factor": (config(rope_scaling={"rope_type": "linear"}), "'factor'"),
    "no positions": (config(max_position_embeddings=0), "max_position_embeddings is 0"),
    "code of its own": (
        config(model_type="own", auto_map={"AutoConfig": "own.Config"}),
        "contains custom code",
    ),
}


def test_files_that_the_index_does_not_name_do_not_count(specadapt, folder, tmp_path):
    before = load_file(folder / "model.safetensors")
    sharded(folder)
    save_file({"tok_embeddings.weight": torch.ones(9, 9)}, folder / "consolidated.safetensors")
    made = specadapt.json("bundle", "import", folder, "--out", tmp_path / "out")
    assert made["parameters"] == sum(weight.numel() for weight in before.values())
    target = load_bundle(tmp_path / "out").part("target")
    assert not (target / "consolidated.safetensors").exists()
    assert len(list(target.glob("*.safetensors"))) == 2


@pytest.mark.parametrize(("spoil", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_whole_model_is_refused(specadapt, folder, tmp_path, caplog, spoil, said):
    spoil(folder)
    out = tmp_path / "bundles" / "out"
    line = specadapt.refusal("bundle", "import", folder, "--out", out)
    assert said in line
    assert ".import-" not in line
    assert not caplog.records
    assert not list(out.parent.glob("*"))
    assert not list(out.parent.glob(".*"))


def test_a_tokenizer_class_that_contradicts_the_file_is_refused(specadapt, folder, tmp_path):
    """transformers' LlamaTokenizer makes a tokenizer of its own of the vocabulary."""
    fields("tokenizer_config.json", tokenizer_class="LlamaTokenizer")(folder)
    line = specadapt.refusal("bundle", "import", folder, "--out", tmp_path / "out")
    assert "tokenizer_config.json: tokenizer_class LlamaTokenizer encodes" in line
    assert not (tmp_path / "out").exists()


def test_other_families_are_refused_alike(specadapt, folder, tmp_path):
    """transformers fills what is missing with random numbers, and says so in a log alone."""
    from transformers import GPT2Config, GPT2LMHeadModel

    tokens = json.loads((folder / "config.json").read_text())["vocab_size"]
    config = GPT2Config(vocab_size=tokens, n_embd=48, n_layer=2, n_head=4, n_positions=64)
    config.bos_token_id = config.eos_token_id = 0
    (folder / "generation_config.json").unlink(missing_ok=True)
    GPT2LMHeadModel(config).save_pretrained(folder)
    made = specadapt.json("bundle", "import", folder, "--out", tmp_path / "whole")
    assert "transformers' forward" in made["forward"]
    tensors(without("transformer.h.1.attn.c_proj.weight"))(folder)
    line = specadapt.refusal("bundle", "import", folder, "--out", tmp_path / "out")
    assert "transformer.h.1.attn.c_proj.weight" in line
    assert not (tmp_path / "out").exists()
