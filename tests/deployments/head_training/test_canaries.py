"""Canaries, judged by what replicas count: better ones are promoted and spoilt ones end soon."""

import random
from collections.abc import Sequence

import numpy as np
import pytest
from canary_setting import BETTER, SPOILT, USUAL, Replica, Service
from stored_heads import head, origin

from deployments.head_training import canaries
from deployments.head_training.canaries import (
    LEAST_ANSWERS,
    MOST_ANSWERS,
    Ledger,
    compared,
)
from deployments.head_training.versions import VersionStore


def ended_as(versions: VersionStore) -> int:
    """Return the version in force, once there is no canary."""
    heads = versions.in_force()
    assert heads.canaries == {}
    return heads.number("eagle3")


@pytest.mark.parametrize(
    ("chance", "ends_as", "most"), [(BETTER, 1, MOST_ANSWERS), (SPOILT, 0, 100)]
)
def test_a_canary_ends_soon_where_the_difference_is_clear(versions, chance, ends_as, most):
    """A service in which one replica cannot load the version."""
    service = Service(versions, 1)
    service.chances = {0: USUAL, 1: chance}
    service.replicas[1].refused = {1: "no memory"}
    assert service.serve(10 * MOST_ANSWERS) < most
    assert ended_as(versions) == ends_as


def test_a_canary_that_routing_seldom_chooses_ends_as_held_out_answers_judged_it(versions, caplog):
    caplog.set_level("INFO")
    service = Service(versions, 14)
    service.chances = {0: USUAL, 1: BETTER}
    service.serve(LEAST_ANSWERS)
    service.serve_others(MOST_ANSWERS - LEAST_ANSWERS - 1)
    assert versions.in_force().canaries
    service.serve_others(1)
    assert ended_as(versions) == 1
    assert "better on held-out answers, and routing gave it only 3" in caplog.text


@pytest.mark.parametrize(("chance", "ends_as"), [(USUAL + 0.01, 1), (USUAL - 0.04, 0)])
def test_a_canary_of_a_method_that_is_chosen_at_times_ends_by_its_own_answers(
    versions, chance, ends_as
):
    """They outweigh the held-out answers only beyond their interval."""
    service = Service(versions, 28)
    service.chances = {0: USUAL, 1: chance}
    assert service.serve(450) > LEAST_ANSWERS
    assert versions.in_force().canaries
    service.serve_others(MOST_ANSWERS - 450)
    assert ended_as(versions) == ends_as


def test_a_canary_that_every_replica_refuses_ends(versions, caplog):
    service = Service(versions, 11)
    service.chances = {0: USUAL}
    for replica in service.replicas:
        replica.refused = {1: "model.safetensors holds NaN"}
    service.serve(2 * LEAST_ANSWERS)
    assert versions.in_force().canaries == {}
    assert "canary 1 of eagle3 is rolled back: replicas cannot load it: model.saf" in caplog.text


def test_a_canary_that_loads_nowhere_ends(versions, caplog):
    service = Service(versions, 15)
    for _ in range(2 * LEAST_ANSWERS):
        service.replicas[0].answer(0, USUAL)
    service.judge.step()
    assert versions.in_force().canaries
    service.serve_others(MOST_ANSWERS)
    assert ended_as(versions) == 0
    assert "no replica drafts with it" in caplog.text


def test_a_canary_with_an_unreadable_manifest_ends_and_the_judge_goes_on(
    versions, tmp_path, caplog
):
    service = Service(versions, 13)
    versions.add(head(tmp_path / "head"), origin())
    (versions.folder(1) / "version.json").write_text("{")
    service.judge.step()
    assert versions.in_force().canaries == {}
    assert "the manifest of version 1 is unreadable" in caplog.text
    versions.try_out(2, 0.1)
    service.chances = {0: USUAL, 2: BETTER}
    service.serve(10 * MOST_ANSWERS)
    assert versions.in_force().number("eagle3") == 2


def test_a_canary_that_has_all_requests_at_first_is_compared_once_others_follow(versions):
    """A vLLM engine drafts with one version at a time."""
    service = Service(versions, 18)
    for _ in range(MOST_ANSWERS):
        service.replicas[0].answer(1, SPOILT)
    service.judge.step()
    assert versions.in_force().canaries
    for _ in range(LEAST_ANSWERS):
        service.replicas[0].answer(0, USUAL)
    service.judge.step()
    assert ended_as(versions) == 0


def test_what_was_counted_before_a_canary_says_nothing_of_it(versions):
    """The head in force looks bad by its past, which were other prompts."""
    service = Service(versions, 6)
    versions.roll_back("eagle3")
    service.chances = {0: SPOILT}
    service.serve(400)
    versions.try_out(1, 0.1)
    service.judge.step()
    service.chances = {0: BETTER, 1: USUAL}
    service.serve(10 * MOST_ANSWERS)
    assert ended_as(versions) == 0


def test_the_interval_holds_as_often_as_it_says():
    """Against the same two versions many times: the ratio of their rates is within two errors."""

    def sums(answers: Sequence[tuple[int, int]]) -> np.ndarray:
        steps, tokens = np.array(answers, float).T
        columns = (np.ones_like(steps), steps, tokens, steps**2, tokens**2, steps * tokens)
        return np.array([column.sum() for column in columns])

    rng, held = random.Random(8), 0
    for _ in range(300):
        drawn = []
        for rate in (2.0, 3.0):
            lengths = [rng.randrange(5, 30) for _ in range(60)]
            drawn.append(sums([(n, round(n * rate * rng.uniform(0.5, 1.5))) for n in lengths]))
        gain, error = compared(drawn[1], drawn[0])
        held += abs(gain - np.log(1.5)) < 2.0 * error
    assert 0.92 < held / 300 < 0.98


def test_what_an_ended_replica_counted_stays(monkeypatch):
    """More replicas than are remembered are not counted twice either."""
    monkeypatch.setattr(canaries, "REPLICAS", 1)
    replicas, ledger = [Replica(name, 1) for name in "abc"], Ledger()
    for replica in replicas:
        replica.answer(1, USUAL)
    for _ in range(3):
        ledger.add([replica.report() for replica in replicas])
    replicas[2].answer(1, USUAL)
    for _ in range(2):
        ledger.add([replicas[2].report()])
    assert ledger.of("eagle3", 1)[0] == 4
    assert not ledger.of("eagle3", 2).any()
