"""The report's own analyses, on made-up traces and profiles of which the answer is known."""

import base64

import numpy as np
import pytest
from report_page import Page

from ops.report.acceptance import acceptance_of, acceptance_section
from ops.report.blocks import Chart, Section, Series
from ops.report.memory import ModelSpec, memory_section, per_token_kib, spec_of, static_gib
from ops.report.page import page
from ops.report.parameters import parameters, parameters_by_method, stored_bytes
from ops.report.results import Mean
from ops.report.summary import certainty

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


LLAMA = ModelSpec(parameters=8.03e9, layers=32, kv_heads=8, head_size=128)
EAGLE3 = ModelSpec(parameters=0.425e9, layers=1, kv_heads=8, head_size=128)
QWEN = ModelSpec(parameters=8.19e9, layers=36, kv_heads=8, head_size=128)
SMALL_QWEN = ModelSpec(parameters=0.596e9, layers=28, kv_heads=8, head_size=128)


@pytest.mark.parametrize(
    ("models", "static", "per_token"),
    [
        ([LLAMA], 14.96, 128),
        ([LLAMA, EAGLE3], 15.75, 132),
        ([QWEN], 15.25, 144),
        ([QWEN, SMALL_QWEN], 16.37, 256),
    ],
)
def test_memory_is_the_studys(models, static, per_token):
    """Table 2 of "Speculative Decoding: Performance or Illusion?" from its Table 3."""
    assert static_gib(models) == pytest.approx(static, abs=0.01)
    assert per_token_kib(models) == per_token


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
    [here] = memory_section(tiny_bundle, ["naive", "adaptive"]).blocks
    plain, both = here.rows
    assert plain[4:] == [0.0, 0.0]
    assert min(both[4:]) > 0.0


@pytest.mark.parametrize(
    ("ends", "word"),
    [
        ((1.01, 1.2), "Sure"),
        ((0.8, 0.99), "Sure"),
        ((0.97, 1.04), "Alike"),
        ((0.97, 1.06), "Open"),
        ((0.94, 1.0), "Open"),
        ((None, None), "Without interval"),
    ],
)
def test_an_interval_says_how_sure(ends, word):
    assert certainty(Mean(value=1.0, low=ends[0], high=ends[1])) == word


def test_texts_are_escaped(tmp_path):
    hostile = "</h1><!-- <b>"
    points = Series(hostile, [1.0], [2.0])
    chart = Chart("c", hostile, hostile, "points", "x", "y", [points])
    picture = tmp_path / "c.png"
    picture.write_bytes(b"png")
    sections = [Section("s", hostile, [hostile], [chart])]
    file = tmp_path / "report.html"
    file.write_text(page(hostile, hostile, sections, {"c": picture}))
    read = Page(file)
    assert read.headings == [(1, hostile), (2, hostile), (3, hostile)]
    [source] = read.images.values()
    assert base64.b64decode(source.removeprefix("data:image/png;base64,")) == b"png"


def test_intervals_along_the_answer_hold_the_mean():
    rng = np.random.default_rng(0)
    rows = [traced("draft", rng.integers(0, 2, (30, 1)).tolist(), str(n)) for n in range(20)]
    series = acceptance_section(acceptance_of(rows), seed=0).blocks[2].series[0]
    for low, middle, high in zip(series.low, series.y, series.high, strict=True):
        assert low < middle < high
