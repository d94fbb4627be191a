"""Bundles on disk, and the hash of a bundle's target."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from spoiling import config

from workers.bundle import Bundle, BundleError, load_bundle, name_part
from workers.weight_files import target_hash


@pytest.fixture
def copy(tiny_bundle: Bundle, tmp_path: Path) -> Bundle:
    return load_bundle(shutil.copytree(tiny_bundle.path, tmp_path / "copy"))


def test_a_bundle_names_its_parts(tiny_bundle: Bundle) -> None:
    assert tiny_bundle.name == "tiny"
    assert (tiny_bundle.part("target") / "config.json").is_file()
    assert tiny_bundle.has("draft")
    assert not tiny_bundle.has("mtp")
    assert tiny_bundle.tokenizer().eos_token == "<|end|>"
    with pytest.raises(BundleError, match="no part 'mtp': it has draft, eagle, eagle3, med"):
        tiny_bundle.part("mtp")


def test_the_hash_follows_the_files(tiny_bundle: Bundle, copy: Bundle) -> None:
    assert copy.content_hash == tiny_bundle.content_hash
    (copy.path / "README.md").write_text("no part of it")
    assert load_bundle(copy.path).content_hash == tiny_bundle.content_hash
    (copy.part("draft") / "config.json").write_text("{}")
    assert load_bundle(copy.path).content_hash != tiny_bundle.content_hash
    assert len(tiny_bundle.content_hash) == 12
    shutil.rmtree(copy.part("draft"))
    with pytest.raises(BundleError, match="part 'draft' is missing"):
        load_bundle(copy.path).part("draft")


def test_no_text_is_cut_or_padded(tiny_bundle: Bundle, copy: Bundle) -> None:
    file = copy.part("tokenizer") / "tokenizer.json"
    texts, tokenizer = ["a longer text", "a"], tiny_bundle.backend_tokenizer()
    whole = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding()
    tokenizer.save(str(file))
    encodings = load_bundle(copy.path).backend_tokenizer().encode_batch(texts)
    assert [encoding.ids for encoding in encodings] == whole


PACKAGED = {"package": "some-model==1.0", "file": "some/model.gguf", "sha256": "ab" * 32}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (None, "no bundle.json"),
        ("{", "not JSON"),
        ('{"name": "x", "name": "y", "parts": {}}', "key 'name' is given twice"),
        ({"name": "x", "parts": {}, "portfolo": []}, "portfolo: unknown field"),
        ({"name": "x", "parts": {"target": 3}}, r"parts\.target: .*string"),
        ({"name": "x", "parts": {}, "portfolio": "naive"}, "portfolio"),
        ({"name": "x", "parts": {}, "weights": {"naive": "none"}}, r"weights\.naive"),
        (
            {"name": "x", "parts": {}, "packaged": {"package": "a"}},
            r"packaged\.file: Field required",
        ),
        ([], "valid dictionary"),
        (
            {"name": "x", "parts": {}, "methods": [{"name": "eagle3", "lossless": True}]},
            r"methods\.0\.source: Field required",
        ),
        (
            {"name": "x", "parts": {}, "sampling": {"temperature": 9}},
            r"sampling\.temperature: .* less than or equal to 2",
        ),
        ({"name": "x"}, "parts: Field required"),
        ({"name": "x", "parts": {"target": "../elsewhere"}}, "inside the bundle"),
        ({"name": "x", "packaged": "a.gguf", "parts": {}}, "packaged: .*dictionary"),
        (
            {"name": "x", "packaged": PACKAGED, "parts": {"target": "target"}},
            "'target' is packaged and may not be in 'parts' too",
        ),
        *(
            (
                {"name": "x", "packaged": PACKAGED | {"sha256": digits}, "parts": {}},
                "sha256: .*pattern",
            )
            for digits in ("12", "../" * 21 + "x")
        ),
    ],
)
def test_what_is_no_bundle_is_refused(tmp_path: Path, body: object, said: str) -> None:
    if body is not None:
        text = body if isinstance(body, str) else json.dumps(body)
        (tmp_path / "bundle.json").write_text(text)
    with pytest.raises(BundleError, match=said):
        load_bundle(tmp_path)


def test_a_part_is_named_once(tmp_path: Path) -> None:
    (tmp_path / "bundle.json").write_text('{"name": "x", "parts": {"target": "t"}}')
    for _ in range(2):
        name_part(tmp_path, "eagle")
        name_part(tmp_path, "target")
    bundle = load_bundle(tmp_path)
    assert (bundle.name, bundle.parts) == ("x", {"target": "t", "eagle": "eagle"})


def packaged_bundle(folder: Path, **changed: object) -> Path:
    body = {"name": "x", "packaged": PACKAGED | changed, "parts": {"eagle": "eagle"}}
    (folder / "eagle").mkdir(parents=True)
    (folder / "eagle" / "config.json").write_text("{}")
    (folder / "bundle.json").write_text(json.dumps(body))
    return folder


def test_packaged_parts_are_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPECADAPT_MODELS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    bundle = load_bundle(packaged_bundle(tmp_path / "x"))
    assert not bundle.has("target")
    with pytest.raises(BundleError, match=r"some-model==1\.0 by `specadapt bundle import .*/x`"):
        bundle.part("target")
    before = bundle.content_hash
    target = tmp_path / "cache" / "specadapt" / "models" / "abababababababab-2" / "target"
    target.mkdir(parents=True)
    assert bundle.has("target")
    assert bundle.part("target") == target
    assert load_bundle(bundle.path).content_hash == before
    with pytest.raises(BundleError, match="no part 'mtp': it has eagle, target, tokenizer"):
        bundle.part("mtp")
    other = load_bundle(packaged_bundle(tmp_path / "y", sha256="cd" * 32))
    assert other.content_hash != before
    monkeypatch.setenv("SPECADAPT_MODELS", str(tmp_path / "models"))
    assert not bundle.has("eagle3")
    assert load_bundle(bundle.path).packaged.folder.parent == tmp_path / "models"


def test_a_named_part_leaves_the_rest_of_the_manifest(tmp_path: Path) -> None:
    name_part(packaged_bundle(tmp_path / "x"), "medusa")
    body = json.loads((tmp_path / "x" / "bundle.json").read_text())
    assert body["packaged"] == PACKAGED
    assert set(body["parts"]) == {"eagle", "medusa"}


def test_a_copy_with_other_heads_is_the_same_target(tiny_bundle: Bundle, copy: Bundle) -> None:
    (copy.part("eagle3") / "config.json").write_text("{}")
    assert target_hash(copy) == target_hash(tiny_bundle)
    assert len(target_hash(copy)) == 12


def test_each_tensor_counts(tiny_bundle: Bundle, copy: Bundle) -> None:
    file = copy.part("target") / "model.safetensors"
    weights, hashes = load_file(file), {target_hash(tiny_bundle)}
    for name, weight in weights.items():
        save_file(weights | {name: weight * 1.01}, file)
        hashes.add(target_hash(copy))
    assert len(hashes) == 1 + len(weights)


def test_the_config_counts(tiny_bundle: Bundle, copy: Bundle) -> None:
    config(rms_norm_eps=0.5)(copy.part("target"))
    assert target_hash(copy) != target_hash(tiny_bundle)


def test_a_packaged_target_needs_no_files(tmp_path: Path) -> None:
    made = (packaged_bundle(tmp_path / byte, sha256=byte * 32) for byte in ("ab", "cd"))
    one, other = (target_hash(load_bundle(folder)) for folder in made)
    assert one != other


def test_files_that_no_engine_reads_do_not_count(tiny_bundle: Bundle, copy: Bundle) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    (copy.part("target") / "consolidated.safetensors").write_text(pointer)
    assert target_hash(copy) == target_hash(tiny_bundle)


ALONE = """
import sys
from workers.bundle import import_without_torch, load_bundle
import_without_torch()
load_bundle("bundles/demo").tokenizer().encode("Hello")
print("torch" in sys.modules)
"""


def test_a_process_that_only_tokenises_loads_no_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=120, check=True
    )
    assert (done.stdout, done.stderr) == ("False\n", "")
