"""JSON and JSON Lines as every command reads them."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from schemas.json_files import json_lines, read_json, read_record
from schemas.text_files import MAX_DEPTH, FileError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rows.jsonl"


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
