"""How often learned drafts are accepted, and what steps cost."""

import json
from pathlib import Path

import numpy as np
import pytest

from workers.drafting.acceptance import USUAL, Acceptance, routed_shares
from workers.drafting.estimates import Estimates
from workers.drafting.step_costs import Finished, StepCosts

GREEDY, SAMPLED = (True, True), (False, True)


def test_levels_are_learned_apart_for_each_traffic() -> None:
    drafter = Acceptance("d", 3, (0.6, 0.4))
    assert drafter.path(GREEDY) == pytest.approx([0.6, 0.36, 0.216])
    for _ in range(100):
        drafter.saw(GREEDY, held=1, known=3)
    first, second, third = drafter.shares(GREEDY)
    assert first > 0.9
    assert second < 0.1
    assert third == second, "a level without data has the share of the level above"
    assert drafter.shares(SAMPLED) == pytest.approx([0.4] * 3)


def test_a_level_beyond_what_the_target_chose_says_nothing() -> None:
    drafter = Acceptance("d", 3)
    for _ in range(50):
        drafter.saw(GREEDY, held=1, known=1)
    assert drafter.shares(GREEDY)[1] == drafter.shares(GREEDY)[0]


def test_a_drafters_confidence_is_calibrated_by_depth_and_temperature() -> None:
    estimates, value = Estimates(), float(np.log(0.8))
    drafter = Acceptance("d", 3, estimates=estimates)
    for index in range(400):
        drafter.saw_token(value, 0, greedy=True, accepted=index % 5 < 2)
    assert drafter.probability(value, 0, greedy=True) == pytest.approx(0.4, abs=0.02)
    assert drafter.probability(value, 1, greedy=True) == pytest.approx(0.8)
    assert drafter.probability(value, 0, greedy=False) == pytest.approx(0.8)
    estimates.exchanged("d")
    assert 0.4 < drafter.probability(value, 0, greedy=True) < 0.8


def test_acceptance_begins_as_a_routing_table_says(tmp_path: Path) -> None:
    (tmp_path / "routing.json").write_text(json.dumps({"methods": ["naive", "d"]}))
    tokens = np.array([[[10.0, 0, 5], [30, 0, 15]], [[10, 0, 5], [5, 0, 15]]])
    steps = np.full((2, 2, 3), 10.0)
    np.savez(tmp_path / "routing.npz", acceptance_tokens=tokens, acceptance_steps=steps)
    greedy, sampled = routed_shares(tmp_path, "d", 3)
    assert 1 + greedy + greedy**2 + greedy**3 == pytest.approx(1.75, abs=0.01)
    assert sampled < 0.01
    assert routed_shares(tmp_path, "vllm_d", 3) == (greedy, sampled)
    assert routed_shares(tmp_path, "unknown", 3) == (USUAL, USUAL)
    assert routed_shares(tmp_path / "absent", "d", 3) == (USUAL, USUAL)


def test_the_table_of_costs_may_fall_and_goes_on_with_its_mean_slope() -> None:
    costs = StepCosts()
    assert costs.table(2).tolist() == [1.0, 1.0, 1.0]
    for rows, seconds in ((8, 35.0), (1, 20.0), (9, 26.0)):
        costs.measured(rows, seconds)
    table = costs.table(17)
    assert table[8] > table[9]
    assert table[17] == pytest.approx(26.0 + 8 * 6.0 / 8)


def test_seconds_follow_steps_and_another_bucket_begins_as_the_nearest() -> None:
    costs = StepCosts()
    for rows in (1, 17):
        costs.measured(rows, float(rows))
    for _ in range(100):
        for rows, seconds in ((8, 11.0), (12, 13.0)):  # 7 seconds and half of the table's
            costs.saw(8, Finished(8, 8, rows, seconds + 1.0, 1.0))
    assert costs.speed.value == pytest.approx(0.5, abs=0.05)
    assert costs.seconds(8, 8) == pytest.approx(11.0, abs=0.5)
    assert costs.seconds(8, 17) == pytest.approx(15.5, abs=0.5)
    assert costs.seconds(4, 4) == pytest.approx(9.0, abs=0.5)
    assert costs.saw(8, Finished(8, 8, 8, 1000.0, 1.0)) < 40.0, "it was disturbed"
