"""How every file of JSON Lines is read."""

from schemas.json_lines import json_lines


def test_blank_lines_count_and_are_skipped(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b'\n{"a": 1}\n \t\r\n\n{"b": "\xe2\x80\xa8"}\r\n\n')
    assert list(json_lines(file)) == [(2, '{"a": 1}'), (5, '{"b": "\u2028"}')]


def test_blank_lines_alone_are_an_empty_file(tmp_path):
    file = tmp_path / "rows.jsonl"
    for nothing in ("", "\n", " \n\r\n"):
        file.write_text(nothing)
        assert list(json_lines(file)) == []
