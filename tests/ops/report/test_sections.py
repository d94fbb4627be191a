"""The report's own analyses, on made-up traces and profiles of which the answer is known."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_page import Page

from ops.report.acceptance import acceptance_of, acceptance_section
from ops.report.blocks import Chart, Section, Series
from ops.report.bounds import bounds_section
from ops.report.figure_files import read_figures
from ops.report.memory import (
    STUDY,
    ModelSpec,
    memory_section,
    per_token_kib,
    spec_of,
    static_gib,
)
from ops.report.overlap import overlap, overlap_of, overlap_section
from ops.report.page import page
from ops.report.parameters import parameters, parameters_by_method, stored_bytes
from ops.report.results import Mean, published
from ops.report.speed import answers_tokens, cost_per_million, speed_section, throughput
from ops.report.summary import certainty, summary_section
from schemas.profile import StepRow
from tests.router.routing_world import (
    ACCEPTANCE,
    CENTROIDS,
    ENCODER,
    METHODS,
    decode_steps,
    make_profile,
)

SURE = 0.75
"""Of every draft token, its drafter."""


def traced(method, kept, prompt_id="p", prompt=(1, 2, 3), answer=None):
    answer = answer or list(range(len(kept) + 1))
    return {
        "prompt_id": prompt_id,
        "method": method,
        "prompt": list(prompt),
        "answer": answer,
        "kept": kept,
        "confidences": [[SURE] * len(levels) for levels in kept],
    }


def test_every_position_is_graded():
    kept = [[1.0, 1.0]] * 10 + [[1.0, 0.0]] * 10
    [(name, found)] = acceptance_of([traced("draft", kept), traced("naive", [[]] * 20)]).items()
    assert name == "draft"
    assert found.lengths == pytest.approx([2.5])
    assert found.tenths[0] == pytest.approx([3.0] * 5 + [2.0] * 5)
    assert found.levels == pytest.approx([1.0, 0.5])


def test_a_level_counts_where_the_one_before_was_kept():
    kept = [[0.5, 0.25], [0.0, 0.0], [0.5, 0.5], []] + [[0.0]] * 4
    [found] = acceptance_of([traced("draft", kept)]).values()
    assert found.levels == pytest.approx([1.0 / 7, 0.75 / 1.0])


def test_the_acceptance_section_shows_these_figures():
    rows = [traced("draft", [[1.0]] * n, str(n)) for n in (8, 20, 30)]
    table, boxes, positions, levels, _ = acceptance_section(acceptance_of(rows), seed=0).blocks
    assert table.rows == [["draft", 3, 2.0, 2.0, 0.0]]
    assert boxes.series[0].y == [2.0] * 5
    assert positions.series[0].y == pytest.approx([2.0] * 10)
    assert levels.series[0].y == [1.0]


def test_a_reliability_curve_has_the_share_kept_by_confidence():
    few = acceptance_of([traced("seldom", [[1.0]] * 8)])
    found = acceptance_of([traced("draft", [[1.0, 1.0]] * 10 + [[1.0, 0.0], [0.0, 0.0]] * 10)])
    curve = acceptance_section(found | few, seed=0).blocks[-1]
    draft, line = curve.series
    assert (draft.name, draft.x) == ("draft", pytest.approx([SURE]))
    # 30 first tokens, 20 of them kept, and 20 second ones behind those, 10 of them kept
    assert draft.y == pytest.approx([30 / 50])
    assert line.x == line.y


def test_overlap_is_one_for_a_copy_and_none_for_a_stranger():
    assert overlap(range(20), range(20)) == pytest.approx((1.0, 1.0))
    bleu, rouge = overlap(range(20), range(100, 120))
    assert bleu < 0.05
    assert rouge == 0.0


@given(st.lists(st.integers(0, 5), min_size=4, max_size=30), st.integers(1, 30))
def test_overlap_lies_between(ids, cut):
    for score in overlap(ids, ids[:cut]):
        assert 0.0 <= score <= 1.0 + 1e-9


def test_look_ups_gain_by_overlap():
    profile, _ = make_profile(per_cluster=12)
    copies = [p.id for p in profile.prompts if p.domain == "edit"]
    text = list(range(12))
    rows = [
        traced("naive", [[]] * 11, p.id, text, text if p.id in copies else list(range(50, 62)))
        for p in profile.prompts
    ]
    found = overlap_of(rows, profile, 0.0)
    correlation = found.correlation(seed=0)
    assert correlation.value == pytest.approx(1.0)
    assert certainty(correlation, neutral=0.0) == "Sure"
    table, chart = overlap_section(found, "naive", seed=0).blocks
    little, much = table.rows
    assert (little[:2], much[:2]) == (["0 to 0.2", 12], ["0.8 to 1", 12])
    assert little[3] < 1.0 < much[3], "over the draft"
    assert sorted(set(chart.series[0].y)) == pytest.approx(sorted(set(found.of("ngram"))))
    assert overlap_of(rows, profile, 0.8) is None


def test_memory_is_the_studys():
    study = json.loads(STUDY.read_text())
    specs = {name: ModelSpec(**spec) for name, spec in study["specs"].items()}
    for known in study["memory"]:
        models = [specs[name] for name in (known["target"], known["drafter"]) if name]
        # Of EAGLE it counts a hundredth of a GiB more than its own example does.
        assert static_gib(models) == pytest.approx(known["static_gib"], abs=0.06)
        assert per_token_kib(models) == known["per_token_kib"]


def test_a_models_memory_is_read_from_its_files(tiny_bundle):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_bundle.part("target"))
    assert parameters(tiny_bundle.part("target")) == sum(p.numel() for p in model.parameters())
    sizes = {p.element_size() for p in model.parameters()}
    assert stored_bytes(tiny_bundle.part("target")) in {
        size * parameters(tiny_bundle.part("target")) for size in (*sizes, 2, 4)
    }
    spec = spec_of(tiny_bundle.part("target"))
    assert spec.layers == model.config.num_hidden_layers
    assert spec.kv_heads == model.config.num_key_value_heads


def test_a_method_that_chooses_among_drafters_has_all_of_their_parameters(tiny_bundle):
    found = parameters_by_method(tiny_bundle, ["naive", "medusa", "eagle3", "adaptive"])
    drafting = {name: count - found["naive"] for name, count in found.items()}
    assert drafting["adaptive"] == drafting["medusa"] + drafting["eagle3"] > 0
    here, _ = memory_section(tiny_bundle, ["naive", "adaptive"]).blocks
    plain, both = here.rows
    assert plain[4:] == [0.0, 0.0]
    assert min(both[4:]) > 0.0


def test_throughput_is_of_the_whole_batch():
    row = {"context": 128, "count": 1, "seconds": 0.5}
    steps = [
        StepRow(method="draft", batch=4, tokens=2.0, **row),
        StepRow(method="draft", batch=1, tokens=2.0, **(row | {"context": 512})),
        StepRow(method="naive", batch=4, **row),
    ]
    assert throughput(steps, 128) == {"draft": {4: 16.0}}
    assert cost_per_million(1000.0, 3.6) == pytest.approx(1.0)


def test_costs_are_of_the_step_grid():
    from ops.report.measured import measured

    profile, vectors = make_profile(per_cluster=8)
    results = measured(profile, vectors, 2, 0.0, {}, seed=0)
    steps = [s.model_copy(update={"tokens": 2.0}) for s in profile.steps]
    consistency, sweep, costs = speed_section(results, steps, price=2.0).blocks
    assert {row[0]: row[-1] for row in consistency.rows} == {
        "naive": 0.0,
        "draft": 0.0,
        "ngram": 0.0,
    }
    drawn = {series.name: series.y for series in sweep.series}
    assert drawn["draft"] == pytest.approx([0.010 / 0.015] * 3)
    [draft] = [row for row in costs.rows if row[0] == "draft"]
    assert draft[1] == pytest.approx(2.0 / 3600.0 / (2.0 / 0.015) * 1e6)
    assert (0, 1) in costs.best, "plain decoding, whose steps are the shortest"
    assert len(speed_section(results, steps, price=None).blocks) == 2
    assert speed_section(results, steps, price=None).text == []


def test_a_tables_steps_have_the_answers_tokens():
    from ops.report.measured import measured
    from router.fit.assign import build_table
    from router.fit.retime import timed_by

    profile, vectors = make_profile(per_cluster=8)
    table = build_table(profile, vectors, CENTROIDS, ENCODER)
    hot = [r.model_copy(update={"temperature": 0.8, "target_steps": 61.0}) for r in profile.rows]
    timed = timed_by(table, replace(profile, rows=(*profile.rows, *hot)))
    assert answers_tokens(profile, 0.0) is None, "what was measured says so itself"
    assert answers_tokens(timed, 0.8) == pytest.approx(dict.fromkeys(METHODS, 1.0))
    tokens = answers_tokens(timed, 0.0)
    mean = sum(map(decode_steps, ACCEPTANCE["ngram"])) / 2
    assert tokens["ngram"] == pytest.approx(60 / mean)
    results = measured(profile, vectors, 2, 0.0, {}, seed=0)
    section = speed_section(results, timed.steps, 2.0, tokens)
    _, sweep, costs = section.blocks
    assert "the routing table's" in sweep.note
    drawn = {series.name: dict(zip(series.x, series.y, strict=True)) for series in sweep.series}
    of = {(s.method, s.batch): s.seconds for s in timed.steps if s.context == 64}
    for batch in (1, 4, 8):
        faster = of["naive", batch] / of["ngram", batch]
        assert drawn["ngram"][batch] == pytest.approx(tokens["ngram"] * faster)
    [plain] = [row for row in costs.rows if row[0] == "naive"]
    assert plain[-1] == pytest.approx(2.0 / 3600.0 / (8 / of["naive", 8]) * 1e6)


def test_what_cannot_be_drawn_by_batch_is_said():
    from ops.report.measured import measured

    profile, vectors = make_profile(per_cluster=8)
    results = measured(profile, vectors, 2, 0.0, {}, seed=0)
    silent = speed_section(results, profile.steps, 2.0)
    assert len(silent.blocks) == 1
    assert (
        "no speedup by batch size and cost: the profile's step grid says nothing" in silent.text[0]
    )
    assert "the profile's step grid is empty" in speed_section(results, (), None).text[0]
    some = [s.model_copy(update={"tokens": 2.0}) for s in profile.steps if s.method != "ngram"]
    [said, _] = speed_section(results, some, 2.0).text
    assert "of ngram: " in said


@pytest.mark.parametrize(
    ("ends", "neutral", "word"),
    [
        ((1.01, 1.2), 1.0, "Sure"),
        ((0.8, 0.99), 1.0, "Sure"),
        ((0.97, 1.04), 1.0, "Alike"),
        ((0.97, 1.06), 1.0, "Open"),
        ((0.94, 1.0), 1.0, "Open"),
        ((0.1, 0.5), 0.0, "Sure"),
        ((-0.2, 0.5), 0.0, "Open"),
        ((None, None), 1.0, "Without interval"),
    ],
)
def test_an_interval_says_how_sure(ends, neutral, word):
    assert certainty(Mean(value=1.0, low=ends[0], high=ends[1]), neutral) == word


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


def test_no_text_ends_the_script_that_holds_it(tmp_path):
    hostile = "</script><!-- <b>"
    points = Series(hostile, [1.0], [2.0], texts=[hostile])
    chart = Chart("c", hostile, hostile, "points", "x", "y", [points])
    file = tmp_path / "report.html"
    file.write_text(page(hostile, hostile, [Section("s", hostile, [hostile], [chart])]))
    read = Page(file)
    assert read.charts["c"]["data"][0]["text"] == [hostile]
    assert read.headings == [(1, hostile), (2, hostile), (3, hostile)]


def test_files_are_told_apart(tmp_path):
    bounds = tmp_path / "bounds.json"
    bounds.write_text(json.dumps(FIGURES))
    assert read_figures([bounds]) == {"bench bounds": FIGURES}
    with pytest.raises(ValueError, match="a second file of bench bounds"):
        read_figures([bounds, bounds])
    for text in ("{}", "[1]"):
        bounds.write_text(text)
        with pytest.raises(ValueError, match="not of bench bounds"):
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


def test_intervals_along_the_answer_hold_the_mean():
    rng = np.random.default_rng(0)
    rows = [traced("draft", rng.integers(0, 2, (30, 1)).tolist(), str(n)) for n in range(20)]
    series = acceptance_section(acceptance_of(rows), seed=0).blocks[2].series[0]
    for low, middle, high in zip(series.low, series.y, series.high, strict=True):
        assert low < middle < high
