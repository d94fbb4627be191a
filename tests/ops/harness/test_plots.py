"""`specadapt plot` on figures as the two benchmarks write them."""

import json
import xml.etree.ElementTree as Xml

import pytest

from ops.load.learning.report import figures_of, tables_of
from ops.load.learning.runs import Look, Pair, Run
from ops.load.runs import Outcome

INTERVAL = {"ratio": 1.2, "ci95": [1.1, 1.3]}


def load_figures():
    policy = {"mean_latency_s": 1.0, "p95_latency_s": 2.0}
    versus = {"mean_latency": INTERVAL, "p95_latency": INTERVAL}
    names = ["routed", "static_table", "only_naive"]
    return {
        "loads": [
            {
                "share_of_capacity": share,
                "policies": dict.fromkeys(names, policy),
                "routed_over": {"best_single": versus, "static_table": versus},
            }
            for share in (0.2, 0.8)
        ]
    }


def outcome(method, seconds):
    return Outcome(method, 10, 0.1, seconds, finished_at=100.0)


def learning_run():
    """The static table's method becomes slow, and once there is no answer."""
    pairs = [
        Pair(float(i), "before" if i < 20 else "slower", outcome("a" if i < 25 else "b", 1.0),
             None if i == 30 else outcome("a", 1.0 if i < 20 else 2.0))
        for i in range(40)
    ]  # fmt: skip
    looks = [Look(float(i), i, "one" if i < 30 else "two", ("a", "b"), 0.1, 0.2) for i in range(40)]
    return Run(pairs, looks, {"before": 0.0, "slower": 20.0})


def test_a_phase_has_its_own_figures():
    before, slow = figures_of(learning_run(), {"method": "a"}, seed=0)["phases"]
    assert before["static_over_routed"]["ratio"] == pytest.approx(1.0)
    assert slow["static_over_routed"]["ratio"] == pytest.approx(2.0)
    assert slow["routed"]["shares"] == {"a": 0.25, "b": 0.75}
    assert (slow["routed"]["refused"], slow["static_table"]["refused"]) == (0, 1)
    assert slow["pairs"] == 20


@pytest.mark.parametrize("seen", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_every_figure_becomes_a_drawing(specadapt, tmp_path, seen):
    about = {} if seen else {"new": ["b"]}
    scenario = figures_of(learning_run(), about, seed=0)
    learned = {"scenarios": {"slower": scenario}}
    assert len(list(tables_of(learned))) == 1
    for stem, body in {"load": load_figures(), "learning": learned}.items():
        file = tmp_path / f"{stem}.json"
        file.write_text(json.dumps(body))
        result = specadapt("plot", file, "--out", tmp_path / "plots")
        assert result.exit_code == 0
        for name in result.stdout.split():
            drawing = Xml.parse(name).getroot()
            assert drawing.tag.endswith("svg")
    files = sorted(f.name for f in (tmp_path / "plots").iterdir())
    assert files == ["learning-slower.svg", "load-latency.svg", "load-ratios.svg"]
    first = (tmp_path / "plots" / files[0]).read_bytes()
    specadapt("plot", tmp_path / "learning.json", "--out", tmp_path / "plots")
    assert (tmp_path / "plots" / files[0]).read_bytes() == first, "the same figures, the same file"


def test_what_cannot_be_drawn_is_refused(specadapt, tmp_path):
    file = tmp_path / "other.json"
    file.write_text("{}")
    assert "not written by bench load, learning, scaling, soak" in specadapt.refusal(
        "plot", file, "--out", tmp_path
    )
    file.write_text("{")
    assert "not JSON" in specadapt.refusal("plot", file, "--out", tmp_path)


def test_bench_learning_refuses_bad_input(specadapt, tmp_path):
    common = ["bench", "learning", "--profile", tmp_path]
    assert "--scenarios: faster is unknown; known scenarios: steady" in specadapt.refusal(
        *common, "--scenarios", "faster"
    )
    assert "--fitted-on: the scenario new_kind needs a profile" in specadapt.refusal(
        *common, "--scenarios", "new_kind"
    )
