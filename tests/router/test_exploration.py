"""Which requests explore: audits, what a response is worth, and the budget."""

from collections import Counter
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from routing_world import CENTROIDS, ENCODER, make_profile, observe

from router.exploration import AUDIT, AUDITED_WITHIN, Explorer, Option
from router.fit.assign import build_table
from router.learner import Learner

SURE = [Option(0, 1.0, 0.01), Option(1, 1.5, 0.01), Option(2, 3.0, 0.01)]


def served(options: list[Option], requests: int, seed: int, share: float = 0.01) -> list[int]:
    """Return the method of each request. A request starts after the response before it."""
    explorer, latest, chosen = Explorer(np.random.default_rng(seed)), [0.0] * len(options), []
    for number in range(1, requests + 1):
        made = explorer.choose(options, latest, share)
        method = options[made.option].method
        latest[method] = float(number)
        chosen.append(method)
    return chosen


def test_each_method_answers_once_within_the_first_requests_and_in_no_burst() -> None:
    for seed in range(20):
        chosen = served(SURE, AUDITED_WITHIN + 1, seed)
        assert set(chosen) == {0, 1, 2}
        assert sum(m != 0 for m in chosen) <= 4
        assert sum(m != 0 for m in chosen[:10]) <= 3


def test_later_audits_are_rare_and_go_to_the_one_that_rested_longest() -> None:
    chosen = served(SURE, 20_000, seed=1)[1000:]
    share = Counter(chosen)
    assert 0.6 * AUDIT < (share[1] + share[2]) / len(chosen) < 1.4 * AUDIT
    others = [m for m in chosen if m]
    assert all(a != b for a, b in pairwise(others))


def test_what_may_be_faster_is_explored_and_what_is_known_is_not() -> None:
    doubtful = [Option(0, 1.0, 0.01), Option(1, 1.05, 0.4), Option(2, 1.05, 0.01)]
    share = Counter(served(doubtful, 2000, seed=2, share=0.05))
    assert share[1] > 5 * share[2]


def test_the_budget_bounds_what_is_spent() -> None:
    doubtful = [Option(0, 1.0, 0.01), Option(1, 1.3, 0.6)]
    chosen = served(doubtful, 5000, seed=3)[AUDITED_WITHIN:]
    assert 0.3 * sum(chosen) / len(chosen) < 0.015


def test_nothing_is_explored_again_while_its_response_is_to_come() -> None:
    explorer, latest = Explorer(np.random.default_rng(0)), [5.0, 0.0, 0.0]
    drawn = [explorer.choose(SURE, latest, 0.01).option for _ in range(300)]
    assert sum(i != 0 for i in drawn) <= 2


@settings(deadline=None, max_examples=50)
@given(
    seconds=st.lists(st.floats(0.1, 10.0), min_size=2, max_size=5),
    error=st.floats(0.0, 1.0),
    latest=st.lists(st.integers(0, 100), min_size=5, max_size=5),
)
def test_propensities_are_probabilities(seconds, error, latest) -> None:
    options = [Option(m, s, error) for m, s in enumerate(sorted(seconds))]
    seen: dict[int, float] = {}
    for seed in range(60):
        made = Explorer(np.random.default_rng(seed)).choose(options, latest, 0.01)
        assert seen.setdefault(made.option, made.propensity) == made.propensity
    assert 0.0 < sum(seen.values()) <= 1.0 + 1e-9


def test_failures_cost_and_are_forgotten() -> None:
    table = build_table(*make_profile(), CENTROIDS, ENCODER)
    learner, ngram = Learner(table), table.methods.index("ngram")
    failed = observe(table, "a", "ngram", 1, total_seconds=30.0).model_copy(
        update={"failed": True, "predicted_seconds": 0.3}
    )
    learner.observe([failed])
    assert learner.table.live.loss[ngram] > 3.0, "30 s lost where 0.3 were predicted"
    assert learner.table.live.steps.sum() == 0.0
    learner.observe(observe(table, str(i), "ngram", 1) for i in range(150))
    assert learner.table.live.loss[ngram] < 0.2
