"""What is known of canaries is bounded and survives restarts."""

from pathlib import Path

import pytest
from canary_setting import BETTER, SPOILT, USUAL, Replica, Service

from deployments.drafters import canaries, evidence
from deployments.drafters.canaries import LEAST_ANSWERS, MOST_ANSWERS
from deployments.drafters.evidence import EVERY, EvidenceStore, Ledger
from deployments.drafters.versions import VersionStore


@pytest.mark.parametrize(("chance", "ends_as"), [(BETTER, 1), (SPOILT, 0)])
def test_evidence_of_a_canary_survives_restarts(
    versions: VersionStore, chance: float, ends_as: int
) -> None:
    """The process restarts before any of them has seen enough."""
    service = Service(versions, 8)
    service.chances, served = {0: USUAL, 1: chance}, 0
    while versions.in_force().canaries and served < MOST_ANSWERS:
        served += service.serve(5 * LEAST_ANSWERS)
        service.restart()
    assert LEAST_ANSWERS <= served < MOST_ANSWERS
    assert versions.in_force().number("eagle3") == ends_as


def test_a_promoted_head_is_watched_after_a_restart(versions: VersionStore) -> None:
    service = Service(versions, 4)
    service.chances = {0: USUAL, 1: BETTER}
    service.serve(10 * MOST_ANSWERS)
    service.restart()
    service.chances[1] = SPOILT
    service.serve(100)
    assert versions.in_force().number("eagle3") == 0


def test_what_a_replica_that_has_ended_counted_survives_a_restart(
    versions: VersionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canaries, "SAVE_SECONDS", 0.0)
    service = Service(versions, 9)
    service.chances = {0: USUAL, 1: BETTER}
    before = service.serve(9 * LEAST_ANSWERS)
    service.replicas = [Replica(f"new {seed}", seed) for seed in (1, 2)]
    service.restart()
    assert service.judge._ledger is not None
    assert service.judge._ledger.of("eagle3", 1)[0] == before


def test_saved_evidence_is_bounded(versions: VersionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canaries, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(evidence, "REPLICAS", 3)
    service = Service(versions, 10)
    for turn in range(5):
        service.replicas = [Replica(f"{turn} {seed}", seed) for seed in range(2)]
        for number in range(4):
            service.replicas[0].answer(number, USUAL)
        service.judge.step()
    saved = EvidenceStore(versions.uri).read()
    assert [*saved.replicas] == ["3 1", "4 0", "4 1"]
    known = {("eagle3", 0), ("eagle3", 1), EVERY}
    assert {(one.part, one.version) for one in saved.total} == known
    counted = (one for counts in saved.replicas.values() for one in counts)
    assert {(one.part, one.version) for one in counted} == known


def test_unreadable_evidence_is_begun_anew(
    versions: VersionStore, caplog: pytest.LogCaptureFixture
) -> None:
    Path(versions.uri, "canaries.json").write_text("{")
    service = Service(versions, 1)
    service.chances = {0: USUAL, 1: BETTER}
    service.serve(10 * MOST_ANSWERS)
    assert versions.in_force().number("eagle3") == 1
    assert "canaries are judged anew" in caplog.records[0].message


def test_what_an_ended_replica_counted_stays() -> None:
    one, other, ledger = Replica("a", 1), Replica("b", 2), Ledger()
    for _ in range(3):
        one.answer(1, USUAL)
        ledger.add([one.report(), other.report()])
    other.answer(1, USUAL)
    ledger.add([other.report()])
    ledger.add([other.report()])
    assert ledger.of("eagle3", 1)[0] == 4
    assert not ledger.of("eagle3", 2).any()


def test_more_replicas_than_are_remembered_are_not_counted_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evidence, "REPLICAS", 1)
    replicas, ledger = [Replica(name, 1) for name in "abc"], Ledger()
    for replica in replicas:
        replica.answer(1, USUAL)
    for _ in range(3):
        ledger.add([replica.report() for replica in replicas])
    assert ledger.of("eagle3", 1)[0] == 3
