"""Bundles with broken, missing or foreign files: a command ends with one line."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"


def text(file, content):
    return lambda bundle: (bundle / file).write_text(content)


def removed(file):
    def spoil(bundle):
        path = bundle / file
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return spoil


def cut(file, kept):
    def spoil(bundle):
        path = bundle / file
        path.write_bytes(path.read_bytes()[:kept])

    return spoil


def config(part, **changes):
    def spoil(bundle):
        file = bundle / part / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return spoil


def tensors(part, change):
    def spoil(bundle):
        file = bundle / part / "model.safetensors"
        weights = load_file(file)
        change(weights)
        save_file(weights, file)

    return spoil


def without(name):
    return lambda weights: weights.pop(name)


def replaced(name, *shape, dtype=torch.float32):
    return lambda weights: weights.update({name: torch.ones(*shape, dtype=dtype)})


BROKEN = {
    "no manifest": ("naive", removed("bundle.json"), "no bundle.json"),
    "manifest": ("naive", text("bundle.json", "[1]"), "must be a JSON object"),
    "unknown field": ("naive", text("bundle.json", '{"nam": "x"}'), "unknown field 'nam'"),
    "no part": ("naive", removed("target"), "part 'target' is missing"),
    "no config": ("naive", removed("target/config.json"), "target/config.json"),
    "config": ("naive", text("target/config.json", "{"), "config.json"),
    "config kind": ("naive", text("target/config.json", "[]"), "config.json"),
    "config values": ("naive", config("target", num_hidden_layers="many"), "config.json"),
    "end tokens": ("naive", text("target/generation_config.json", "[]"), "generation_config.json"),
    "no weights": ("naive", removed("target/model.safetensors"), "no *.safetensors"),
    "cut off": ("naive", cut("target/model.safetensors", 5000), "cut off or damaged"),
    "empty": ("naive", cut("target/model.safetensors", 0), "not a whole safetensors file"),
    "pointer": ("naive", text("target/model.safetensors", POINTER), "git lfs pull"),
    "target tensor": (
        "naive",
        tensors("target", without("model.norm.weight")),
        "lack model.norm.weight",
    ),
    "target shape": (
        "naive",
        tensors("target", replaced("model.norm.weight", 32)),
        "model.norm.weight is [32]",
    ),
    "no tokenizer": ("naive", removed("tokenizer"), "part 'tokenizer' is missing"),
    "tokenizer": ("naive", text("tokenizer/tokenizer.json", "{}"), "the tokenizer in"),
    "tokenizer pointer": ("naive", text("tokenizer/tokenizer.json", POINTER), "git lfs pull"),
    "draft": ("draft_verify", cut("draft/model.safetensors", 100), "draft/model.safetensors"),
    "draft's vocabulary": (
        "draft_verify",
        config("draft", vocab_size=77),
        "model.embed_tokens.weight",
    ),
    "medusa's config": ("medusa", text("medusa/config.json", "{"), "medusa/config.json"),
    "medusa's width": ("medusa", config("medusa", hidden_size=32), "hidden_size is 32"),
    "medusa's tensor": (
        "medusa",
        tensors("medusa", replaced("blocks.0.layers.0.weight", 64, 32)),
        "blocks.0.layers.0.weight is [64, 32]",
    ),
    "eagle's config": ("eagle", removed("eagle/config.json"), "no config.json"),
    "eagle's tensor": ("eagle", tensors("eagle", replaced("fc.weight", 64, 64)), "fc.weight is"),
    "eagle's list": ("eagle", text("eagle/draft_vocabulary.json", "[]"), "draft_vocabulary.json"),
    "eagle3's target": ("eagle3", config("eagle3", vocab_size=5), "the target it was trained for"),
    "eagle3's ids": ("eagle3", tensors("eagle3", replaced("d2t", 3, dtype=torch.int64)), "d2t"),
    "eagle3's id kind": ("eagle3", tensors("eagle3", replaced("d2t", 3)), "d2t"),
    "eagle3's extra": (
        "eagle3",
        tensors("eagle3", replaced("midlayer.self_attn.q_norm.weight", 16)),
        "midlayer.self_attn.q_norm.weight",
    ),
    "eagle3 cut off": ("eagle3", cut("eagle3/model.safetensors", 999), "not a whole safetensors"),
}


@pytest.mark.parametrize(("method", "spoil", "said"), BROKEN.values(), ids=BROKEN)
def test_a_broken_bundle_is_one_line(specadapt, tiny_bundle, tmp_path, method, spoil, said):
    bundle = tmp_path / "bundle"
    shutil.copytree(tiny_bundle.path, bundle)
    spoil(bundle)
    given = ["--bundle", bundle, "--method", method, "--prompt", "Hi", "--max-tokens", 2]
    assert said in specadapt.refusal("generate", *given)
