"""The arithmetic of `bench bounds` on made-up answers."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.bounds.costs import StepSeconds
from ops.bounds.figures import Answer, bounds
from ops.bounds.reached import reached

LEVELS = {"copy": 4, "draft": 4}
SECONDS = StepSeconds(
    whole={"naive": 1.0, "copy": 1.1, "draft": 1.4},
    drafting={"naive": 0.0, "copy": 0.0, "draft": 0.3},
    rows=np.asarray([1.0, 5.0]),
    forwards=np.asarray([1.0, 1.1]),
)
TOKENS = 12


def answer(name, copy, draft, cluster=None, routed=None):
    """Of a drafter so many tokens are kept everywhere; the domain is the name's first letter."""
    kept = {"copy": [copy] * TOKENS, "draft": [draft] * TOKENS}
    return Answer(name, name[0], kept, cluster, routed)


def test_the_best_of_a_group_is_one_drafter_for_all_of_it():
    answers = [answer("a1", 3, 0), answer("a2", 3, 0), answer("b1", 0, 3), answer("b2", 3, 2)]
    figures = bounds(answers, LEVELS, SECONDS, seed=0)
    assert figures["best_single"]["speedup"] < figures["best_of_domain"] < figures["best_of_prompt"]
    assert figures["by_domain"]["a"]["best_of_domain"] == figures["by_domain"]["a"]["copy"]
    assert figures["by_domain"]["b"]["best_of_domain"] == figures["by_domain"]["b"]["draft"]
    assert "routed" not in figures


def test_where_no_drafter_pays_the_best_of_a_group_is_none():
    figures = bounds([answer("a1", 0, 0)], LEVELS, SECONDS, seed=0)
    assert figures["by_domain"]["a"]["best_of_domain"] == 1.0
    assert figures["best_single"]["speedup"] < 1.0


def test_what_routing_reaches():
    answers = [
        answer("a1", 3, 0, 0, "copy"),
        answer("a2", 0, 3, 1, "draft"),
        answer("b1", 0, 0, 1, "naive"),
    ]
    figures = bounds(answers, LEVELS, SECONDS, seed=0)
    assert figures["by_cluster"]["0"]["routed"] == pytest.approx(1 / 1.1 * 4)
    assert figures["by_domain"]["b"]["routed"] == 1.0
    assert figures["routed_over"]["best_of_prompt"]["ratio"] == pytest.approx(1.0)
    low, high = figures["routed_over"]["best_of_prompt"]["ci95"]
    assert low == high == pytest.approx(1.0)
    assert figures["by_cluster"]["1"]["answers"] == 2


def test_clusters_are_in_the_order_of_their_numbers():
    answers = [answer(f"a{c}", 3, 0, c, "copy") for c in (10, 2, 1)]
    assert list(bounds(answers, LEVELS, SECONDS, seed=0)["by_cluster"]) == ["1", "2", "10"]


def test_a_domain_without_a_plain_rate_has_no_share(tmp_path):
    """Plain answers may be too short to have a rate where a lossy method's are not."""
    figures = bounds([answer("a1", 3, 0), answer("b1", 0, 3)], LEVELS, SECONDS, seed=0)
    rate, none = {"decode_tokens_per_s": 10.0}, {"decode_tokens_per_s": None}
    methods = {
        "naive": rate | {"by_domain": {"a": rate, "b": none}},
        "copy": rate | {"by_domain": {"a": rate, "b": rate}},
    }
    file = tmp_path / "decoded.json"
    file.write_text(json.dumps({"methods": methods, "settings": {"prompts": {"ids": ["a1"]}}}))
    found = reached(file, figures, {"a1"})
    assert list(found["copy"]["by_domain"]) == ["a"]


KEPT = st.tuples(st.integers(0, 4), st.integers(0, 4))


@settings(max_examples=12, deadline=None)
@given(st.lists(KEPT, min_size=2, max_size=6))
def test_bounds_are_in_order(kept):
    answers = [answer(f"{'ab'[i % 2]}{i}", *both, i % 2, "copy") for i, both in enumerate(kept)]
    figures = bounds(answers, LEVELS, SECONDS, seed=0)
    single, eps = figures["best_single"]["speedup"], 1e-9
    assert single <= figures["best_of_domain"] + eps
    assert figures["best_of_prompt"] >= single - eps
    assert figures["best_schedule"] >= figures["oracle_combine"] - eps
    assert figures["best_schedule"] >= max(figures["oracle_length"].values()) - eps
    assert list(figures["combined"]) == ["copy + draft"]
    assert figures["combined"]["copy + draft"]["speedup"] == figures["oracle_combine"]
    for name, (low, high) in figures["ci95"].items():
        assert low - eps <= high, name
