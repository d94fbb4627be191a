"""What replicas cost, and demand, from known counts and arrivals; and the drawing of both."""

import json

import numpy as np
import pytest

from ops.load.arrivals import excerpt
from ops.load.scaling.figures import Count, demand_figures, replica_figures


def test_a_replica_costs_its_gpu_while_it_starts_and_stops():
    counts = [Count(0.5, 1, 0, 0), Count(1.0, 1, 0, 2), Count(3.0, 3, 0, 0), Count(4.0, 1, 2, 0)]
    found = replica_figures(counts, 6.0)
    assert found["gpu_seconds"] == pytest.approx(1 + 3 * 2 + 3 * 1 + 3 * 2)
    assert found["mean_replicas"] == pytest.approx(16 / 6)
    assert (found["most_replicas"], found["scaled_up"], found["scaled_down"]) == (3, 1, 1)


def test_looks_that_saw_the_same_are_one():
    counts = [Count(float(at), 1, 0, 0) for at in range(5)] + [Count(5.0, 0, 1, 1)]
    found = replica_figures(counts, 6.0)
    assert [count["at"] for count in found["replicas"]] == [0.0, 5.0]
    assert (found["scaled_up"], found["scaled_down"]) == (0, 0)


def test_demand_is_work_per_second():
    found = demand_figures(np.asarray([0.0, 4.0, 7.0]), np.asarray([1.0, 2.0, 10.0]), 10.0)
    assert found["replicas"] == [0.6, 2.0]
    assert found["mean_replicas"] == pytest.approx(1.3)


@pytest.fixture
def trace(tmp_path):
    """A burst of 100 arrivals in the first second, and one every 10 seconds until 1000."""
    times = [*np.linspace(0, 1, 100), *range(10, 1001, 10)]
    file = tmp_path / "trace.jsonl"
    file.write_text("".join(json.dumps({"timestamp": 1e3 * t}) + "\n" for t in times))
    return file


def test_an_excerpt_keeps_the_bursts(trace):
    whole = excerpt(trace, 100, 100.0, None, seed=0)
    assert (len(whole), whole.max() <= 100.0) == (100, True)
    assert 30 < (whole < 1.0).sum() < 70
    begun = excerpt(trace, 50, 10.0, 2.0, seed=0)
    assert ((begun < 1.0).sum() >= 48, begun.max() <= 10.0) == (True, True)
    assert np.all(np.diff(begun) >= 0.0)
    assert np.array_equal(begun, excerpt(trace, 50, 10.0, 2.0, seed=0))
