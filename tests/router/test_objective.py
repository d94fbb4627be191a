"""What routing makes small: mean seconds over plain decoding's, or mean seconds."""

from dataclasses import replace

import numpy as np
import pytest
from routing_world import CENTROIDS, ENCODER, METHODS, STEP, make_profile, with_answer

from router.fit.assign import TableOptions, build_table
from router.fit.evaluate import evaluate
from router.fit.profile import Profile
from router.learner import Learner
from router.table import RoutingTableError
from schemas import Objective

LONG, SHORT = 1201, 41


def few_long_answers(name: str) -> tuple[Profile, np.ndarray]:
    """In the second cluster every fourth answer is thirty times as long, and only on these n-gram
    beats the draft model."""
    profile, vectors = make_profile(name, per_cluster=12)

    def changed(row):
        if int(row.prompt_id.partition("-")[2]) % 2 == 0:
            return row
        long = int(row.prompt_id.partition("-")[2]) % 8 == 1
        acceptance = {"naive": 1.0, "draft": 2.5, "ngram": 8.0 if long else 1.2}[row.method]
        tokens = LONG if long else SHORT
        return with_answer(row, tokens, round((tokens - 1) / acceptance), STEP[row.method])

    return replace(profile, rows=tuple(changed(row) for row in profile.rows)), vectors


@pytest.mark.parametrize(("objective", "favourite"), [("speedup", "draft"), ("seconds", "ngram")])
def test_long_answers_count_for_more_where_seconds_are_to_be_small(objective, favourite):
    table = build_table(
        *few_long_answers("fit"), CENTROIDS, ENCODER, TableOptions(objective=objective)
    )
    assert [row[0] for row in table.assignment] == ["draft", favourite]
    found = evaluate(table, *few_long_answers("held"))
    assert found.objective == objective
    assert (found.best_single, found.routed_over_best_single >= 1.0) == (favourite, True)


def test_seconds_are_judged_by_their_sum() -> None:
    table = build_table(
        *few_long_answers("fit"), CENTROIDS, ENCODER, TableOptions(objective="seconds")
    )
    held, vectors = few_long_answers("held")
    seconds = {n: sum(row.seconds for row in held.rows if row.method == n) for n in METHODS}
    found = evaluate(table, held, vectors)
    for name in METHODS:
        assert found.harmonic_mean[name] == pytest.approx(seconds["naive"] / seconds[name])
    low, high = found.routed_over_best_single_ci95
    assert low <= found.routed_over_best_single <= high
    assert found.by_temperature["0"]["routed"] == pytest.approx(found.routed)


def test_the_method_for_prompts_without_a_cluster_follows_the_objective() -> None:
    """n-gram is much the faster in one cluster and much the slower in the other, whose answers are
    ten times as long: by ratios the one is as good as the other, by seconds it is not."""
    profile, vectors = make_profile(per_cluster=12)

    def changed(row):
        talks = int(row.prompt_id.partition("-")[2]) % 2 == 0
        acceptance = {"naive": 1.0, "draft": 1.6, "ngram": 1.0 if talks else 6.0}[row.method]
        tokens = 601 if talks else 61
        return with_answer(row, tokens, round((tokens - 1) / acceptance), STEP["naive"])

    even = replace(
        profile,
        rows=tuple(changed(row) for row in profile.rows),
        steps=tuple(row.model_copy(update={"seconds": STEP["naive"]}) for row in profile.steps),
    )
    by: dict[Objective, str] = {}
    for objective in ("speedup", "seconds"):
        table = build_table(even, vectors, CENTROIDS, ENCODER, TableOptions(objective=objective))
        assert [row[0] for row in table.assignment] == ["draft", "ngram"]
        by[objective] = table.default_method
    assert by == {"speedup": "ngram", "seconds": "draft"}


def test_tables_of_two_objectives_are_two_tables() -> None:
    """What was learned under the one is no state of the other."""
    by_speedup, by_seconds = (
        build_table(*few_long_answers("fit"), CENTROIDS, ENCODER, TableOptions(objective=objective))
        for objective in ("speedup", "seconds")
    )
    assert by_speedup.fit_id != by_seconds.fit_id
    state = Learner(by_speedup).state()
    with pytest.raises(RoutingTableError, match="start it anew"):
        Learner.restore(by_seconds, state)
