"""The file of API keys: what it may say, and that a new version is read."""

import json
import logging

import pytest
import yaml

from deployments.guard.key_file import KeyFile, hash_of, read_keys


def key(name, **fields):
    return {"name": name, "sha256": hash_of(f"secret-{name}")} | fields


def write(file, *keys, **fields):
    """In the place of what is there, as a mounted secret changes."""
    scratch = file.with_suffix(".new")
    scratch.write_text(yaml.safe_dump({"keys": list(keys), **fields}))
    scratch.replace(file)


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "keys.yaml"
    write(file, key("one"), key("two", tenant="acme"), tenants={"acme": {}})
    return file


def test_a_key_is_found_by_its_text_alone(file):
    keys = KeyFile(file)
    assert keys.find("secret-two").tenant == "acme"
    assert keys.find("secret-three") is None
    assert keys.find("") is None
    assert keys.find(hash_of("secret-two")) is None


def test_a_new_version_counts_at_once(file):
    keys = KeyFile(file)
    write(file, key("two"), key("three"))
    assert keys.find("secret-one") is None
    assert keys.find("secret-three").name == "three"


def test_a_version_that_cannot_be_read_leaves_the_one_before_in_force(file, caplog):
    keys = KeyFile(file)
    with caplog.at_level(logging.ERROR):
        file.write_text("keys: [{name: x}]")
        assert keys.find("secret-one").name == "one"
        file.unlink()
        assert keys.find("secret-one").name == "one"
    assert "keys.0.sha256" in caplog.text
    write(file, key("four"))
    assert keys.find("secret-one") is None


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"keys": [key("one"), key("one", sha256="0" * 64)]}, "name 'one' is there twice"),
        ({"keys": [key("one"), {**key("one"), "name": "two"}]}, "sha256 .* is there twice"),
        ({"keys": [key("one", tenant="acme")]}, "tenant 'acme' is not among tenants"),
        ({"keys": [{"name": "one", "sha256": "secret"}]}, "keys.0.sha256"),
        ({"keys": [key("one", limits={"tokens_per_minute": 0})]}, "limits.tokens_per_minute"),
        ({"keys": [key("one", sha256=hash_of(""))]}, "keys.0.sha256: this is the hash of an empty"),
        ({"keys": [], "keyz": []}, "keyz"),
        (["one"], "valid dictionary"),
        (b"", "0 YAML documents"),
        (b"keys: []\nkeys: []\n", "line 2: not YAML: key 'keys' is given twice"),
        (b"keys: [\xff]", "line 1: not UTF-8"),
        (b"keys: [", "not YAML"),
        (b"keys: []\0", "line 1: holds a NUL byte"),
        (None, "keys.yaml: No such file"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, written, said):
    file = tmp_path / "keys.yaml"
    if written is not None:
        body = written if isinstance(written, bytes) else yaml.safe_dump(written).encode()
        file.write_bytes(body)
    with pytest.raises(ValueError, match=f"http.guard.keys_file: .*{said}"):
        read_keys(file)


def test_json_may_be_indented_with_tabs(tmp_path):
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [key("one")]}, indent="\t"))
    assert [one.name for one in read_keys(file).keys] == ["one"]
