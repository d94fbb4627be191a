"""Bundles on disk."""

import json
import shutil
from pathlib import Path

import pytest

from workers.bundle import Bundle, BundleError, load_bundle, name_part


def test_a_bundle_names_its_parts(tiny_bundle: Bundle) -> None:
    assert tiny_bundle.name == "tiny"
    assert (tiny_bundle.part("target") / "config.json").is_file()
    assert tiny_bundle.has("draft")
    assert not tiny_bundle.has("mtp")
    assert tiny_bundle.tokenizer().eos_token == "<|end|>"
    with pytest.raises(BundleError, match="no part 'mtp': it has draft, eagle, eagle3, med"):
        tiny_bundle.part("mtp")


def test_the_hash_follows_the_files(tiny_bundle: Bundle, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(tiny_bundle.path, copy)
    assert load_bundle(copy).content_hash == tiny_bundle.content_hash
    (copy / "README.md").write_text("no part of it")
    assert load_bundle(copy).content_hash == tiny_bundle.content_hash
    (copy / "draft" / "config.json").write_text("{}")
    assert load_bundle(copy).content_hash != tiny_bundle.content_hash
    assert len(tiny_bundle.content_hash) == 12
    shutil.rmtree(copy / "draft")
    with pytest.raises(BundleError, match="part 'draft' is missing"):
        load_bundle(copy).part("draft")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (None, "no bundle.json"),
        ("{", "is not JSON"),
        ([], "'name' must be a string"),
        ({"name": "x"}, "'parts' must map"),
        ({"name": "x", "parts": {"target": "../elsewhere"}}, "inside the bundle"),
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
