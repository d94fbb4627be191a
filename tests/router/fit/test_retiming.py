"""New step times of a method in a routing table."""

import numpy as np
import pytest
from routing_world import CENTROIDS, ENCODER, make_profile

from router.fit.assign import build_table
from router.fit.retime import with_step_times
from schemas import RoutingTable

SECONDS = np.asarray([[[0.005, 0.006], [0.010, 0.011], [0.012, 0.013]]])
PREFILL = np.asarray([[0.1, 0.001]])


@pytest.fixture
def table() -> RoutingTable:
    profile, vectors = make_profile()
    return build_table(profile, vectors, CENTROIDS, ENCODER)


def changed(table: RoutingTable) -> RoutingTable:
    return with_step_times(table, ["draft"], SECONDS, np.full(SECONDS.shape, 30.0), 1.5, PREFILL)


def test_other_methods_keep_their_times(table: RoutingTable) -> None:
    made = changed(table)
    for name in ("naive", "ngram"):
        index = table.methods.index(name)
        np.testing.assert_array_equal(made.step_seconds[index], table.step_seconds[index])
    np.testing.assert_array_equal(made.acceptance_tokens, table.acceptance_tokens)
    draft = table.methods.index("draft")
    np.testing.assert_array_equal(made.step_seconds[draft], SECONDS[0])
    assert made.step_count[draft].tolist() == [[30.0, 30.0]] * 3


def test_what_was_learned_of_the_old_steps_is_forgotten(table: RoutingTable) -> None:
    learned = table.with_live(step_ratio=np.full(3, 2.0), step_weight=np.full(3, 9.0))
    made = changed(learned)
    draft = made.methods.index("draft")
    assert made.live.step_ratio[draft] == 1.0
    assert made.live.batch_ratio[draft] == 1.5
    assert made.live.step_weight[draft] == 0.0
    assert made.live.step_ratio.sum() == 5.0
