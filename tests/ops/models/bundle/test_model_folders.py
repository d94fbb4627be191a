"""Hugging Face folders whose files are not a whole model: each is refused, nothing stays."""

import json
import shutil

import pytest
import torch
from broken_folders import REFUSED, sharded, weights_of
from safetensors.torch import load_file, save_file

from workers.bundle import load_bundle


@pytest.fixture
def folder(tiny_bundle, tmp_path):
    """A download of the tiny model, in one folder."""
    source = tmp_path / "some-model"
    shutil.copytree(tiny_bundle.part("target"), source)
    shutil.copytree(tiny_bundle.part("tokenizer"), source, dirs_exist_ok=True)
    return source


def test_files_that_the_index_does_not_name_do_not_count(specadapt, folder, tmp_path):
    before = load_file(folder / "model.safetensors")
    sharded(folder)
    save_file({"tok_embeddings.weight": torch.ones(9, 9)}, folder / "consolidated.safetensors")
    made = specadapt.json("bundle", "import", folder, "--out", tmp_path / "out")
    assert made["parameters"] == sum(weight.numel() for weight in before.values())
    target = load_bundle(tmp_path / "out").part("target")
    assert not (target / "consolidated.safetensors").exists()
    assert len(list(target.glob("*.safetensors"))) == 2


@pytest.mark.parametrize(("spoil", "said"), REFUSED.items(), ids=[f.__name__ for f in REFUSED])
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
    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_text()) | {"tokenizer_class": "LlamaTokenizer"}
    file.write_text(json.dumps(config))
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
    weights_of(folder, lambda weights: weights.pop("transformer.h.1.attn.c_proj.weight"))
    line = specadapt.refusal("bundle", "import", folder, "--out", tmp_path / "out")
    assert "transformer.h.1.attn.c_proj.weight" in line
    assert not (tmp_path / "out").exists()
