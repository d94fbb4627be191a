"""The report's own analyses, on made-up traces and profiles of which the answer is known."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_page import Page

from ops.report.acceptance import acceptance_of, acceptance_section
from ops.report.blocks import Chart, Section, Series
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
from ops.report.results import Mean
from ops.report.summary import certainty
from tests.router.routing_world import (
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


def test_no_text_ends_the_script_that_holds_it(tmp_path):
    hostile = "</script><!-- <b>"
    points = Series(hostile, [1.0], [2.0], texts=[hostile])
    chart = Chart("c", hostile, hostile, "points", "x", "y", [points])
    file = tmp_path / "report.html"
    file.write_text(page(hostile, hostile, [Section("s", hostile, [hostile], [chart])]))
    read = Page(file)
    assert read.charts["c"]["data"][0]["text"] == [hostile]
    assert read.headings == [(1, hostile), (2, hostile), (3, hostile)]


def test_intervals_along_the_answer_hold_the_mean():
    rng = np.random.default_rng(0)
    rows = [traced("draft", rng.integers(0, 2, (30, 1)).tolist(), str(n)) for n in range(20)]
    series = acceptance_section(acceptance_of(rows), seed=0).blocks[2].series[0]
    for low, middle, high in zip(series.low, series.y, series.high, strict=True):
        assert low < middle < high
