"""`specadapt report`: the paper's numbers, a CSV file and a profile as tables and figures."""

import json

import pytest

from ops.common.boundary import InputError
from ops.report.results import PAPER, published, tabulated
from router.fit.speedup import harmonic_mean

KNOWN = json.loads(PAPER.read_text())


def test_the_papers_numbers(specadapt, tmp_path):
    found = specadapt.json("report", "--from-paper", "--out", tmp_path)
    assert found["best_single"] == {
        "name": "draft_verify",
        "speedup": pytest.approx(1.52, abs=0.01),
    }
    assert found["routed"] == pytest.approx(KNOWN["by_k"]["10"]["routed"], abs=0.001)
    assert found["assignment"][4] == "draft_verify"
    page = (tmp_path / "report.md").read_text()
    for label in KNOWN["labels"].values():
        assert label in page
    assert "| silhouette | 0.146 |" in page
    assert [f"## Table {n}." in page for n in ("I", "II", "III", "IV")] == [True] * 4
    for name in ("figure-6", "figure-7"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert f"({name}.png)" in page
    assert sorted(found["files"]) == sorted(str(file) for file in tmp_path.iterdir())


def test_the_papers_table_three_gives_its_table_two():
    means = published().means
    assert {name: round(means[name], 2) for name in KNOWN["overall"]} == KNOWN["overall"]


def test_a_table_of_clusters_and_methods(specadapt, tmp_path):
    file = tmp_path / "speedups.csv"
    file.write_text("cluster,naive,ngram,medusa\n0,1,0.5,1.5\n1,1,3,1.2\n2,1,0.9,0.8\n")
    found = specadapt.json("report", "--speedups", file, "--out", tmp_path / "out")
    assert found["assignment"] == ["medusa", "ngram", "naive"]
    assert found["harmonic_mean"]["ngram"] == pytest.approx(harmonic_mean([0.5, 3, 0.9]))
    assert found["best_single"]["name"] == "medusa"
    assert found["routed"] == pytest.approx(harmonic_mean([1.5, 3, 1]))
    page = (tmp_path / "out" / "report.md").read_text()
    assert "| 1 | 1 | **3.00** | 1.2 |" in page
    assert "Table IV" not in page
    file.write_text("cluster,ngram\n0,fast\n")
    said = specadapt.refusal("report", "--speedups", file, "--out", tmp_path / "out")
    assert "speedups.csv, line 2: ngram must be a number above 0" in said


def test_rows_may_stand_in_any_order(tmp_path):
    file = tmp_path / "s.csv"
    file.write_bytes(b"\xef\xbb\xbfcluster, naive ,ngram\r\n\r\n1,1.0,0.8\r\n0,1.0, 1.3\r\n")
    assert tabulated(file).assignment == ["ngram", "naive"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "line 1: must be `cluster,`"),
        ("cluster;a\n0;1\n", "line 1: must be `cluster,`"),
        ("cluster,a,a\n0,1,2\n", "line 1: must be `cluster,`"),
        ("cluster,a,\n0,1,2\n", "line 1: must be `cluster,`"),
        ("cluster,a\n", "number the clusters from 0"),
        ("cluster,a\n1,1\n", "number the clusters from 0"),
        ("cluster,a\n0,1\n0,2\n", "line 3: needs 2 cells and its own cluster"),
        ("cluster,a,b\n\n0,1\n", "line 3: needs 3 cells"),
        *(
            (f"cluster,a\n0,1\n1,{cell}\n", "line 3: a must be a number above 0")
            for cell in ("fast", "", "0", "-1", "1e400", "nan", "inf", "0x1", "1e-320")
        ),
        ('cluster,a\n0,"1\n', "line 2: not CSV"),
    ],
)
def test_a_malformed_table_is_refused_by_its_line(tmp_path, text, complaint):
    file = tmp_path / "s.csv"
    file.write_text(text, newline="")
    with pytest.raises(InputError, match=r"s\.csv") as caught:
        tabulated(file)
    assert complaint in str(caught.value)


def test_a_profile(specadapt, world, fitted, tmp_path):
    folder, _, _ = world
    common = ["report", "--profile", folder / "fit", "--config", folder / "config.yaml"]
    found = specadapt.json(*common, "--clusters", 2, "--out", tmp_path / "out")
    assert found["over_prompts"]["ngram"] == pytest.approx(
        fitted[0]["harmonic_mean_speedup"]["ngram"]
    )
    assert set(found["assignment"]) <= {"naive", "ngram", None}
    assert found["by_k"]["2"]["routed"] >= found["best_single"]["speedup"]
    names = {"figure-1.png", "figure-2.png", "figure-6.png", "figure-7.png", "report.md"}
    assert {file.name for file in (tmp_path / "out").iterdir()} == names
    common += ["--out", tmp_path / "no"]
    assert "--temperature: nothing was measured at 0.8, only at 0" in specadapt.refusal(
        *common, "--temperature", 0.8
    )
    assert "--clusters: 50 of" in specadapt.refusal(*common, "--clusters", 50)
    assert "--profile: give one of" in specadapt.refusal(*common, "--from-paper")
    assert "--profile: give one of" in specadapt.refusal("report", "--out", tmp_path / "no")
