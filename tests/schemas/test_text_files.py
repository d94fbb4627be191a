"""Every way in which a file of text can be none."""

import os
from pathlib import Path

import pytest

from schemas import text_files
from schemas.text_files import FileError, read_text, text_lines


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "input.txt"


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
