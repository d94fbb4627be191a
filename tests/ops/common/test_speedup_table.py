"""A CSV of speedups to an assignment."""

from pathlib import Path

import pytest

from ops.common.speedup_table import SpeedupTableError, assign_speedups, read_speedups
from schemas.text_files import FileError

PAPER = Path(__file__).parent / "data" / "specadapt_table3.csv"


def test_the_papers_table_three_gives_its_table_two() -> None:
    found = assign_speedups(*read_speedups(PAPER))
    assert {n: round(x, 2) for n, x in found.harmonic_mean.items()} == {
        "FSD (Std)": 1.34,
        "Spec-Dec (Std)": 1.52,
        "Eagle2 (Std)": 1.33,
        "Naive (vLLM)": 1.13,
        "Spec-Dec (vLLM)": 1.87,
        "Eagle1 (vLLM)": 1.81,
    }
    assert found.best_single == "Spec-Dec (vLLM)"


def test_the_standard_columns_give_table_four() -> None:
    columns = ["FSD (Std)", "Spec-Dec (Std)", "Eagle2 (Std)"]
    methods, speedups = read_speedups(PAPER)
    found = assign_speedups(columns, speedups[:, [methods.index(name) for name in columns]])
    assert round(found.routed, 3) == 1.658
    assert found.assignment[4] == "Spec-Dec (Std)"
    assert found.best_single == "Spec-Dec (Std)"
    assert found.routed > found.best_single_speedup


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "line 1: must be `cluster,`"),
        ("a,b\n0,1\n", "line 1: must be `cluster,`"),
        ("cluster;a\n0;1\n", "line 1: must be `cluster,`"),
        ("cluster,a\n", "no clusters"),
        ("cluster,a,a\n0,1,2\n", "line 1: column 'a' is given twice"),
        ("cluster,a,cluster\n0,1,2\n", "line 1: column 'cluster' is given twice"),
        ("cluster,a,\n0,1,2\n", "line 1: no column without a name"),
        ("cluster,a\n0,1\n0,2\n", "line 3: cluster 0 is given twice, first in line 2"),
        ("cluster,a\n0,1\n2,2\n", "cluster 1 is missing"),
        ("cluster,a\n1,1\n", "cluster 0 is missing"),
        ("cluster,a\n-1,1\n", "line 2: cluster must be a number from 0"),
        ("cluster,a\n0.5,1\n", "line 2: cluster must be a number from 0"),
        ("cluster,a\n,1\n", "line 2: cluster must be a number from 0"),
        ("cluster,a,b\n0,1\n", "line 2: 2 cells for 3 columns"),
        ("cluster,a\n\n0,1,2\n", "line 3: 3 cells for 2 columns"),
        ("cluster,a,b\n0,1,\n", "line 2: b must be a number above 0, not ''"),
        *(
            (f"cluster,a\n0,1\n1,{cell}\n", "line 3: a must be a number above 0")
            for cell in ("fast", "0", "-1", "1e400", "-1e400", "nan", "inf", "1_0", "0x1")
        ),
        ("cluster,a\n0,1e-320\n", "line 2: a is 1e-320: no speedup is so far from 1"),
        ("cluster,a\n0,1e308\n", "line 2: a is 1e308"),
        ('cluster,a\n0,"1\n', "line 2: not CSV"),
        ("cluster,a\r0,1\r", "line 1: not CSV"),
        ('cluster,a\n0,"' + "1" * 200_000 + '"\n', "line 2: not CSV"),
    ],
)
def test_a_malformed_table_is_refused_by_its_line(tmp_path: Path, text: str, complaint: str):
    file = tmp_path / "s.csv"
    file.write_text(text, newline="")
    with pytest.raises(SpeedupTableError, match=r"s\.csv") as caught:
        read_speedups(file)
    assert complaint in str(caught.value)


def test_rows_are_ordered_by_their_cluster(tmp_path: Path):
    file = tmp_path / "s.csv"
    file.write_text("cluster,naive,ngram\n2,1.0,3.0\n0,1.0,0.5\n1,1.0,2.0\n")
    methods, speedups = read_speedups(file)
    assert speedups.tolist() == [[1.0, 0.5], [1.0, 2.0], [1.0, 3.0]]
    assert assign_speedups(methods, speedups).assignment == ("naive", "ngram", "ngram")


def test_a_byte_order_mark_crlf_and_spaces_are_no_content(tmp_path: Path):
    file = tmp_path / "s.csv"
    file.write_bytes(b"\xef\xbb\xbfcluster, naive ,ngram\r\n\r\n0,1.0, 1.3\r\n1,1.0,0.8\r\n")
    methods, speedups = read_speedups(file)
    assert methods == ("naive", "ngram")
    assert speedups.tolist() == [[1.0, 1.3], [1.0, 0.8]]


def test_what_is_not_text_is_refused_by_its_line(tmp_path: Path):
    file = tmp_path / "s.csv"
    file.write_bytes(b"cluster,a\n0,\xff\n")
    with pytest.raises(FileError, match="line 2: not UTF-8"):
        read_speedups(file)
