"""Throughput and costs of a report, from the step grid and from a routing table."""

import pytest

from ops.report.speed import cost_per_million, speed_section, throughput
from schemas.profile import StepRow
from tests.router.routing_world import (
    make_profile,
)


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
