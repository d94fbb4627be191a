"""Bundles with broken, missing or foreign files: a command ends with one line."""

import shutil

import pytest
from spoiling import config, cut, replaced, tensors, text, without

NORM = "model.norm.weight"
EXTRA = "midlayer.self_attn.q_norm.weight"
BROKEN = {
    "naive": {
        "end tokens": (text("target/generation_config.json", "[]"), "generation_config.json"),
        "cut off": (cut("target/model.safetensors", 5000), "not a whole safetensors"),
        "tensor": (tensors(without(NORM), "target"), f"lack {NORM}"),
        "shape": (tensors(replaced(NORM, 32), "target"), f"{NORM} is [32]"),
    },
    "draft_verify": {
        "cut off": (cut("draft/model.safetensors", 100), "draft/model.safetensors"),
        "vocabulary": (config("draft", vocab_size=77), "model.embed_tokens.weight"),
    },
    "eagle3": {
        "target": (config("eagle3", vocab_size=5), "the target it was trained for"),
        "extra": (tensors(replaced(EXTRA, 16), "eagle3"), EXTRA),
        "cut off": (cut("eagle3/model.safetensors", 999), "not a whole safetensors"),
    },
}


@pytest.mark.parametrize(
    ("method", "case"), [(method, case) for method, cases in BROKEN.items() for case in cases]
)
def test_a_broken_bundle_is_one_line(specadapt, tiny_bundle, tmp_path, method, case):
    spoil, said = BROKEN[method][case]
    bundle = tmp_path / "bundle"
    shutil.copytree(tiny_bundle.path, bundle)
    spoil(bundle)
    given = ["--bundle", bundle, "--method", method, "--prompt", "Hi", "--max-tokens", 2]
    assert said in specadapt.refusal("generate", *given)
