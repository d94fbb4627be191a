"""What routing may cost in worlds in which something is otherwise than the table says."""

import pytest

from ops.simulate.run import simulate
from ops.simulate.world import Base, World, read_world

BASE = read_world(None)[1]
PREFERRED = "preferred"
COPIES_LESS = {"method": "suffix", "acceptance": 0.5, "clusters": [2, 5]}


def slow_from(at: int, factor: float = 2.0) -> dict[str, object]:
    return {"at": at, "truth": [{"method": PREFERRED, "step": factor}]}


def figures(world: dict[str, object], base: Base = BASE) -> dict[str, object]:
    found, _ = simulate(World.model_validate(world), base, 600, seed=1)
    return found


@pytest.mark.parametrize(
    ("world", "excess"),
    [
        ({}, 0.016),
        ({"truth": [{"method": PREFERRED, "step": 2.0}]}, 0.03),
        ({"truth": [COPIES_LESS]}, 0.03),
        ({"others": {"share": 0.5, "cluster": 5, "method": "ngram", "acceptance": 6.0}}, 0.02),
        ({"events": [{"at": 50, "pause_seconds": 300}], "arrivals": {"concurrency": 2}}, 0.03),
        ({"events": [slow_from(150)]}, 0.03),
        ({"events": [{"at": 200, "truth": [COPIES_LESS]}]}, 0.03),
        ({"believed": "none"}, 0.2),
    ],
)
def test_little_is_lost(world, excess):
    assert figures(world)["excess"] < excess


@pytest.mark.parametrize("wrong", [{"step": 2.0}, {"acceptance": 0.5}])
def test_a_method_profiled_too_slow_is_found(wrong):
    believed, truth = {"method": "medusa", **wrong}, {"method": "medusa", "best_by": 2.0}
    made = figures({"believed": [believed], "truth": [truth]})
    assert made["requests_until_found"] <= 60
    assert made["excess"] < 0.09


def test_prompts_return_to_a_method_that_has_recovered():
    made = figures({"events": [slow_from(50, 3.0), slow_from(200, 1.0)]})
    assert made["excess_last_quarter"] < 0.03


def test_a_method_that_fails_is_left():
    made = figures({"truth": [{"method": PREFERRED, "fails": 0.4}]})
    assert made["shares"]["suffix"] < 0.15
