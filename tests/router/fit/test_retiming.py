"""Step times of new settings in a table whose acceptance was measured under the old ones."""

import numpy as np
import pytest
from routing_world import CENTROIDS, ENCODER, STEP, make_profile

from router import evidence, predict
from router.fit.assign import build_table
from router.fit.retime import retimed
from schemas import RoutingTable
from schemas.profile import StepRow

SECONDS = {1: 0.005, 4: 0.010, 8: 0.012}
"""Of a step under the new settings."""
TOKENS = {1: 1.0, 4: 0.8, 8: 0.5}
"""That it emits, of what it did."""
ROWS = [
    StepRow(method="draft", batch=batch, context=context, seconds=seconds, count=30)
    for batch, seconds in SECONDS.items()
    for context in (64, 512)
]


@pytest.fixture
def table() -> RoutingTable:
    profile, vectors = make_profile()
    return build_table(profile, vectors, CENTROIDS, ENCODER)


def changed(table: RoutingTable) -> RoutingTable:
    return retimed(table, "draft", "newsettings1", ROWS, TOKENS.__getitem__)


def test_seconds_per_token_are_those_measured(table: RoutingTable) -> None:
    made = changed(table)
    draft = made.methods.index("draft")
    accepted = evidence.acceptance(made)[0, draft, 0]
    for batch, seconds in SECONDS.items():
        predicted = predict.step_seconds(made, draft, batch, 64) / accepted
        assert predicted == pytest.approx(seconds / (accepted * TOKENS[batch]))


def test_other_methods_keep_theirs(table: RoutingTable) -> None:
    made = changed(table)
    for name in ("naive", "ngram"):
        index = table.methods.index(name)
        np.testing.assert_array_equal(made.step_seconds[index], table.step_seconds[index])
        assert made.settings_hashes[name] == table.settings_hashes[name]
    np.testing.assert_array_equal(made.acceptance_tokens, table.acceptance_tokens)


def test_it_is_another_fit_of_other_settings(table: RoutingTable) -> None:
    made = changed(table)
    assert made.settings_hashes["draft"] == "newsettings1"
    assert made.fit_id not in ("", table.fit_id)
    assert changed(table).fit_id == made.fit_id
    draft = made.methods.index("draft")
    assert made.step_count[draft].tolist() == [[30.0, 30.0]] * 3


def test_what_was_learned_of_the_old_steps_is_forgotten(table: RoutingTable) -> None:
    learned = table.with_live(step_ratio=np.full(3, 2.0), step_weight=np.full(3, 9.0))
    made = changed(learned)
    draft = made.methods.index("draft")
    assert made.live.step_ratio[draft] == 1.0
    assert made.live.step_weight[draft] == 0.0
    assert made.live.step_ratio.sum() == 5.0


def test_what_was_learned_of_prefills_stays(table: RoutingTable) -> None:
    """They are not measured anew."""
    learned = {"prefill_ratio": np.full(3, 2.0), "cached_share": np.full(3, 0.5)}
    made = changed(table.with_live(**learned))
    for array, expected in learned.items():
        np.testing.assert_array_equal(getattr(made.live, array), expected)


def test_favourites_follow(table: RoutingTable) -> None:
    """Steps a third as long make `draft` the fastest where n-gram was."""
    assert STEP["draft"] == 3 * SECONDS[1]
    assert table.assignment[1][0] == "ngram"
    assert [row[0] for row in changed(table).assignment] == ["draft", "draft"]
