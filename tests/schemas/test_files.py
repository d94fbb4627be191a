"""Files of text, JSON, JSON Lines and YAML as every command and the service read them."""

import os
from pathlib import Path

import pytest
from pydantic import BaseModel

from schemas import text_files
from schemas.json_files import json_lines, read_json, read_record
from schemas.text_files import MAX_DEPTH, FileError, read_text, text_lines
from schemas.yaml_files import parse_yaml, read_yaml


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rows.jsonl"


def test_a_byte_order_mark_is_no_content(file):
    file.write_bytes(b"\xef\xbb\xbfa\r\nb\x85\xe2\x80\xa8\n".replace(b"\x85", b"\xc2\x85"))
    assert list(text_lines(file)) == [(1, "a\r\n"), (2, "b\x85\u2028\n")]
    assert read_text(file) == "a\r\nb\x85\u2028\n"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"a\nb\xff\n", "line 2: not UTF-8 (byte 0xff at position 2)"),
        (b"a\n\xed\xa0\xbd\n", "line 2: not UTF-8"),
        ("é".encode("latin-1"), "line 1: not UTF-8"),
        ("cluster".encode("utf-16"), "line 1: UTF-16"),
        ("cluster".encode("utf-16-le"), "line 1: holds a NUL byte"),
        (b"a\n\nb\0", "line 3: holds a NUL byte"),
    ],
)
def test_what_is_not_text_is_refused_by_its_line(file, body, said):
    file.write_bytes(body)
    with pytest.raises(FileError) as caught:
        read_text(file)
    assert str(file) in str(caught.value)
    assert said in str(caught.value)


def test_a_line_that_would_fill_the_memory_is_refused(file, monkeypatch):
    monkeypatch.setattr(text_files, "MAX_LINE_BYTES", 10)
    file.write_text("0123456789\n")
    with pytest.raises(FileError, match="line 1: longer than 10 bytes"):
        read_text(file)


def test_only_regular_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for name, said in {
        "none": "No such file",
        "": "is a directory",
        "pipe": "is not a regular file",
        "loop": "symbolic links",
        "x" * 300: "name too long",
        "a\0b": "not a path",
    }.items():
        with pytest.raises(FileError, match=said):
            read_text(tmp_path / name)


def test_blank_lines_count_and_are_skipped(file):
    file.write_bytes(b'\n{"a": 1}\n \t\r\n\n{"b": "\xe2\x80\xa8"}\r\n\n')
    assert list(json_lines(file)) == [(2, {"a": 1}), (5, {"b": "\u2028"})]


def test_blank_lines_alone_are_an_empty_file(file):
    for nothing in ("", "\n", " \n\r\n", "\ufeff\n"):
        file.write_text(nothing, encoding="utf-8")
        assert list(json_lines(file)) == []


def test_byte_order_marks_of_joined_files_are_no_content(file):
    file.write_text('\ufeff{"a": 1}\n\ufeff{"a": 2}\n', encoding="utf-8")
    assert [value for _, value in json_lines(file)] == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"a": ', "not JSON: Expecting value at column 6"),
        ('{"a": 1} x', "not JSON: Extra data"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ("[-Infinity]", "-Infinity is not a JSON number"),
        ("[1e400]", "1e400 is too large a number"),
        ("[" + "1" * 5000 + "]", "4300 digits"),
        ('{"a": 1, "b": 2, "a": 3}', "key 'a' is given twice"),
        ('[{"b": {"a": 1, "a": 1}}]', "key 'a' is given twice"),
        ('{"a": "\\ud83d"}', "\\ud83d is half a surrogate pair"),
        ('{"\\uDC00": 1}', "\\udc00 is half a surrogate pair"),
        ("[" * 100_000, "nested too deeply"),
        ("[" * 300 + "]" * 300, f"nested more than {MAX_DEPTH} levels deep"),
    ],
)
def test_what_is_not_strict_json_is_refused(file, line, said):
    file.write_text(f"{{}}\n{line}\n")
    with pytest.raises(FileError) as caught:
        list(json_lines(file))
    assert str(caught.value).startswith(f"{file}, line 2: ")
    assert said in str(caught.value)
    file.write_text(line)
    with pytest.raises(FileError, match="rows"):
        read_json(file)


def test_a_whole_pair_of_surrogates_is_a_character(file):
    file.write_text('{"a": "\\ud83d\\ude00"}')
    assert read_json(file) == {"a": "😀"}


def test_a_file_of_several_lines_names_the_one_that_is_wrong(file):
    file.write_text('{\n"a": 1,\n}\n')
    with pytest.raises(FileError, match="line 3: not JSON"):
        read_json(file)


def test_a_record_names_its_field(file):
    class Point(BaseModel):
        x: int

    file.write_text('{"x": 1}')
    assert read_record(file, Point) == Point(x=1)
    file.write_text('{"x": "far"}')
    with pytest.raises(FileError, match=r"rows\.jsonl: x: Input should be a valid integer"):
        read_record(file, Point)


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
        ("1: a\n0x1: b\n", "key '0x1' is given twice"),
        ("a: b: c", "line 1: not YAML"),
        ("a: !!python/object:os.system {}", "not YAML: could not determine a constructor"),
        ("a: !!int x", "not YAML"),
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
