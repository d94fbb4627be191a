"""The hash of a bundle's target: equal for its copies, another for another fine-tune."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from workers.bundle import Bundle, load_bundle
from workers.weight_files import target_hash


@pytest.fixture
def copy(tiny_bundle: Bundle, tmp_path: Path) -> Bundle:
    return load_bundle(shutil.copytree(tiny_bundle.path, tmp_path / "copy"))


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
    file = copy.part("target") / "config.json"
    body = json.loads(file.read_text())
    file.write_text(json.dumps(body | {"rms_norm_eps": 0.5}))
    assert target_hash(copy) != target_hash(tiny_bundle)


def test_a_packaged_target_needs_no_files(tmp_path: Path) -> None:
    def packaged(sha256: str) -> Bundle:
        body = {
            "name": "x",
            "parts": {},
            "packaged": {"package": "a", "file": "b.gguf", "sha256": sha256},
        }
        (tmp_path / "bundle.json").write_text(json.dumps(body))
        return load_bundle(tmp_path)

    one, other = (target_hash(packaged(byte * 32)) for byte in ("ab", "cd"))
    assert one != other


def test_files_that_no_engine_reads_do_not_count(tiny_bundle: Bundle, copy: Bundle) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    (copy.part("target") / "consolidated.safetensors").write_text(pointer)
    assert target_hash(copy) == target_hash(tiny_bundle)
