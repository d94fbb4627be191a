"""JSON files of benchmarks in a report: which command wrote them, and their section."""

import json
from pathlib import Path

import pytest

from ops.report.bounds import bounds_section
from ops.report.figure_files import read_figures
from ops.report.results import published
from ops.report.summary import summary_section

SHARE = {
    "answers": 4,
    "speedup": 1.4,
    "best_of_prompt": 0.78,
    "oracle_combine": 0.7,
    "best_schedule": 0.67,
    "ci95": {
        name: [0.6, 0.8]
        for name in ("speedup", "best_of_prompt", "oracle_combine", "best_schedule")
    },
}


FIGURES = {
    "answers": 4,
    "best_single": {"name": "ngram", "speedup": 1.5},
    "fixed": {"ngram": 1.5},
    "oracle_length": {"ngram": 1.7},
    "routed": 1.6,
    "best_of_prompt": 1.8,
    "oracle_combine": 2.0,
    "best_schedule": 2.1,
    "combined": {"ngram + draft": {"speedup": 2.0, "ci95": [1.9, 2.2]}},
    "ci95": {
        name: [1.0, 3.0]
        for name in ("ngram", "routed", "best_of_prompt", "oracle_combine", "best_schedule")
    },
    "combine_over_best_single": 2.0 / 1.5,
    "combine_over_best_single_ci95": [1.2, 1.4],
    "by_domain": {"math": {"answers": 4, "ngram": 1.5, "oracle_combine": 2.0}},
    "routed_over": {
        "ngram": {"ratio": 1.6 / 1.5, "ci95": [0.99, 1.2]},
        "best_of_prompt": {"ratio": 1.6 / 1.8, "ci95": [0.8, 0.9]},
    },
    "reached": {
        "adaptive": SHARE
        | {"by_domain": {"math": SHARE}, "by_cluster": {"3": SHARE | {"oracle_combine": 0.75}}},
        "suffix": SHARE | {"by_domain": {"math": SHARE}, "by_cluster": {}},
    },
}


def test_bounds_are_shown_and_said():
    blocks = {block.id: block for block in bounds_section(FIGURES).blocks}
    ladder = blocks["bounds-ladder"].series[0]
    assert dict(zip(ladder.x, ladder.y, strict=True))["Oracle_Combine"] == 2.0
    assert ladder.low == (1.0,) * 5
    assert blocks["bounds-combined"].rows[0][-1] == pytest.approx(2.0 / 1.5)
    assert blocks["bounds-reached-domain"].rows == [["math", *[0.7, 0.6, 0.8] * 2]]
    assert blocks["bounds-reached-cluster"].rows == [["3", 0.75, 0.6, 0.8, None, None, None]]
    assert blocks["bounds-reached"].rows[0][:5] == ["adaptive", 4, 1.4, 0.6, 0.8]
    assert "bounds-cluster" not in blocks
    said = " ".join(summary_section(published(), None, FIGURES, None, seed=0).text)
    assert "Sure: choosing drafter and length at every position" in said
    assert "Open: routing by the table is 1.07 times the best single drafter" in said
    assert "Sure: adaptive reaches 70% of Oracle_Combine (95%: 0.60 to 0.80)" in said


def test_files_are_told_apart(tmp_path):
    bounds = tmp_path / "bounds.json"
    bounds.write_text(json.dumps(FIGURES))
    assert read_figures([bounds]) == {"bench bounds": FIGURES}
    with pytest.raises(ValueError, match="a second file of bench bounds"):
        read_figures([bounds, bounds])
    for text in ("{}", "[1]"):
        bounds.write_text(text)
        with pytest.raises(ValueError, match="not written by one of bench bounds"):
            read_figures([bounds])
    bounds.write_text("{")
    with pytest.raises(ValueError, match="not JSON"):
        read_figures([bounds])


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"combined": None}, "combined does not fit"),
        ({"ci95": {"ngram": [1.0]}}, "ci95.ngram.1 is missing"),
        ({"reached": {"suffix": {"speedup": 1.5}}}, "reached.suffix.answers is missing"),
    ],
)
def test_a_file_of_another_version_is_named_with_its_field(tmp_path, changed, says):
    file = tmp_path / "bounds.json"
    file.write_text(json.dumps(FIGURES | changed))
    with pytest.raises(ValueError, match=f"bounds.json: {says}.*`specadapt bench bounds` of anoth"):
        read_figures([file])


def test_files_that_were_published_can_be_read_or_say_why():
    folder = Path("docs/results")
    for name in ("demo-bounds", "router", "smollm2-bounds-avx2", "smollm2-stages-avx2"):
        assert read_figures([folder / f"{name}.json"])
    assert read_figures([folder / "smollm2-quality.json"])
