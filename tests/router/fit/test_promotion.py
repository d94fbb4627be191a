"""A learned table as the one that a service begins with."""

import numpy as np
import pytest
from routing_world import METHODS, observe

from router import preferred
from router.fit.unfitted import promoted
from router.learner import Learner
from router.table import load_table, save_table
from schemas import RoutingTable


def test_it_predicts_what_the_learned_one_predicts(table: RoutingTable, tmp_path) -> None:
    learner = Learner(table)
    # n-gram accepts twice what was profiled, and its steps take three times as long
    other = {"target_steps": 16, "decode_seconds": 15 * 0.036, "first_token_seconds": 0.02}
    learner.observe(observe(table, str(index), "ngram", 0, **other) for index in range(60))
    learned = learner.table
    made = promoted(learned)
    assert made.assignment == learned.assignment
    assert made.fit_id != learned.fit_id
    assert made.live.steps.sum() == 0.0
    theirs, ours = preferred.typical_seconds(learned), preferred.typical_seconds(made)
    assert not np.allclose(preferred.typical_seconds(table), theirs, rtol=0.2), "it has learned"
    np.testing.assert_allclose(ours, theirs, rtol=0.05)
    assert made.provenance["promoted_from"]["version"] == learned.version

    save_table(made, tmp_path)
    assert load_table(tmp_path).fit_id == made.fit_id
    assert promoted(table).step_seconds[METHODS.index("ngram")] == pytest.approx(
        table.step_seconds[METHODS.index("ngram")]
    )
