"""YAML as every command and the service read it."""

import pytest

from schemas.text_files import FileError
from schemas.yaml_files import parse_yaml, read_yaml


def test_documents_are_read_and_empty_ones_left_out(tmp_path):
    file = tmp_path / "x.yaml"
    file.write_text("\ufeffa: 1\r\n---\n---\nb: é\n", encoding="utf-8")
    assert read_yaml(file) == [{"a": 1}, {"b": "é"}]


def test_merged_keys_may_be_given_again():
    text = "base: &base {x: 1, y: 2}\nmore: &more {<<: *base, x: 3}\nmost: {<<: *more, x: 4}\n"
    [found] = parse_yaml(text, "x")
    assert found["most"] == {"x": 4, "y": 2}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3: not YAML: key 'a' is given twice, first in line 1"),
        ("x:\n  - {b: 1, b: 1}\n", "line 2: not YAML: key 'b' is given twice"),
        ("yes: 1\ntrue: 2\n", "key 'true' is given twice"),
        ("'a': 1\na: 2\n", "key 'a' is given twice"),
        ("1: a\n0x1: b\n", "key '0x1' is given twice"),
        ("a: [", "not YAML"),
        ("a: b: c", "line 1: not YAML"),
        ("a: !!python/object:os.system {}", "not YAML: could not determine a constructor"),
        ("a: !!int x", "not YAML"),
        ("a: !!int ''", "not YAML"),
        ("a: !!bool maybe", "not YAML"),
        ("a: !!timestamp soon", "not YAML"),
        ("a: *none", "undefined alias"),
        ("? [a]\n: 1\n", "not YAML"),
        ("a: 1\nb: \x07\n", "line 2: not YAML: character #x0007"),
        ('a: "\\ud83d"', "half a surrogate pair"),
        ("[" * 10_000, "nested too deeply"),
        ("[" * 150 + "]" * 150, "levels deep"),
        ("a: &a [*a]", "levels deep"),
        (
            "a0: &a0 [x]\n"
            + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 20)}]\n" for i in range(1, 12)),
            "more than",
        ),
        ("a: " + "1" * 5000, "4300 digits"),
    ],
)
def test_what_is_not_yaml_is_one_line(text, said):
    with pytest.raises(FileError) as caught:
        parse_yaml(text, "some.yaml")
    assert str(caught.value).startswith("some.yaml")
    assert said in str(caught.value)
