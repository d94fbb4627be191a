"""Canaries, judged by what replicas count: better ones are promoted and spoilt ones end soon."""

import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from stored_heads import drafted_answer, head, origin, store

from deployments.drafters import canaries, evidence
from deployments.drafters.canaries import LEAST_ANSWERS, MOST_ANSWERS, CanaryJudge, compared
from deployments.drafters.evidence import EvidenceStore, Ledger
from deployments.drafters.versions import VersionStore
from deployments.replica.heads import HeadTally
from schemas import LoadReport

USUAL, BETTER, SPOILT = 0.5, 0.7, 0.1
"""Chance that a draft token is accepted, of up to four in a step."""


class Replica:
    """Answers of random lengths whose versions accept as many drafts as their chances say."""

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.tally, self.rng = name, HeadTally(), random.Random(seed)
        self.refused: dict[int, str] = {}

    def answer(self, version: int, chance: float) -> None:
        length, tokens, steps = self.rng.randrange(20, 80), 1, 1
        # some texts are easier than others
        eased = chance * self.rng.uniform(0.6, 1.2)
        while tokens < length:
            accepted = itertools.takewhile(lambda _: self.rng.random() < eased, range(4))
            tokens, steps = tokens + 1 + len(list(accepted)), steps + 1
        self.tally.saw(drafted_answer(tokens, steps, head_versions={"eagle3": version}))

    def report(self) -> LoadReport:
        return LoadReport(
            replica=self.name,
            methods=("eagle3",),
            running=0,
            waiting=0,
            outstanding_tokens=0,
            free_slots=1,
            heads=self.tally.counts,
            refused_heads=self.refused,
            time=0.0,
        )


class Service:
    """Two replicas with a judge that looks after every answer. One request in ten is a canary's."""

    def __init__(self, versions: VersionStore, seed: int) -> None:
        self.versions = versions
        self.replicas = [Replica("a", seed), Replica("b", seed + 1)]
        self.chances: dict[int, float] = {}
        self.restart()

    def restart(self) -> None:
        """Start the process that judges again."""
        self.judge = CanaryJudge(self.versions, lambda: [one.report() for one in self.replicas])
        self.judge.step()

    def serve(self, answers: int) -> int:
        """Serve so many answers, fewer if what serves changes; return how many of a canary."""
        before, canaries_served = self.versions.in_force(), 0
        for index in range(answers):
            heads = self.versions.in_force()
            if heads != before:
                break
            canary = heads.canaries.get("eagle3")
            replica = self.replicas[index % 2]
            loaded = canary is not None and canary.number not in replica.refused
            serves = canary if loaded and index % 10 == 0 else None
            number = heads.number("eagle3") if serves is None else serves.number
            canaries_served += serves is not None
            replica.answer(number, self.chances[number])
            self.judge.step()
        return canaries_served


@pytest.fixture
def versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VersionStore:
    monkeypatch.setattr(canaries, "LOOK_SECONDS", 0.0)
    kept = store(str(tmp_path / "state"))
    kept.add(head(tmp_path / "head"), origin())
    kept.try_out(1, 0.1)
    return kept


def test_a_better_canary_is_promoted(versions: VersionStore) -> None:
    service = Service(versions, 1)
    service.chances = {0: USUAL, 1: BETTER}
    assert service.serve(10 * MOST_ANSWERS) < MOST_ANSWERS
    assert versions.in_force().number("eagle3") == 1


def test_a_spoilt_canary_ends_within_a_hundred_of_its_answers(versions: VersionStore) -> None:
    service = Service(versions, 2)
    service.chances = {0: USUAL, 1: SPOILT}
    assert service.serve(10 * MOST_ANSWERS) < 100
    heads = versions.in_force()
    assert (heads.number("eagle3"), heads.canaries) == (0, {})


def test_a_canary_that_is_no_better_ends_too(versions: VersionStore) -> None:
    service = Service(versions, 3)
    service.chances = {0: USUAL, 1: USUAL}
    assert service.serve(20 * MOST_ANSWERS) <= MOST_ANSWERS + 1
    assert versions.in_force().canaries == {}


def test_a_head_that_is_spoilt_after_promotion_goes_within_a_hundred_answers(
    versions: VersionStore,
) -> None:
    service = Service(versions, 4)
    service.chances = {0: USUAL, 1: BETTER}
    service.serve(10 * MOST_ANSWERS)
    service.serve(130)
    assert versions.in_force().number("eagle3") == 1
    service.chances[1] = SPOILT
    service.serve(100)
    assert versions.in_force().number("eagle3") == 0


def test_a_head_stays_while_prompts_get_a_little_harder(versions: VersionStore) -> None:
    service = Service(versions, 5)
    service.chances = {0: USUAL, 1: BETTER}
    service.serve(10 * MOST_ANSWERS)
    service.chances[1] = BETTER - 0.05
    service.serve(500)
    assert versions.in_force().number("eagle3") == 1


def test_a_canary_that_every_replica_refuses_ends(
    versions: VersionStore, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service(versions, 11)
    service.chances = {0: USUAL}
    for replica in service.replicas:
        replica.refused = {1: "model.safetensors holds NaN"}
    service.serve(2 * LEAST_ANSWERS)
    assert versions.in_force().canaries == {}
    assert "canary 1 of eagle3 is rolled back: replicas cannot load it: model.saf" in caplog.text


def test_a_canary_is_judged_by_the_replicas_that_load_it(versions: VersionStore) -> None:
    service = Service(versions, 12)
    service.chances = {0: USUAL, 1: BETTER}
    service.replicas[1].refused = {1: "no memory"}
    service.serve(10 * MOST_ANSWERS)
    assert versions.in_force().number("eagle3") == 1


def test_a_canary_with_an_unreadable_manifest_ends_and_the_judge_goes_on(
    versions: VersionStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
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


def test_what_was_counted_before_a_canary_says_nothing_of_it(versions: VersionStore) -> None:
    """The head in force looks bad by its past, which were other prompts."""
    service = Service(versions, 6)
    versions.roll_back("eagle3")
    service.chances = {0: SPOILT}
    service.serve(400)
    versions.try_out(1, 0.1)
    service.judge.step()
    service.chances = {0: BETTER, 1: USUAL}
    service.serve(10 * MOST_ANSWERS)
    heads = versions.in_force()
    assert (heads.number("eagle3"), heads.canaries) == (0, {})


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
    assert {(one.part, one.version) for one in saved.total} == {("eagle3", 0), ("eagle3", 1)}
    assert {one.version for counts in saved.replicas.values() for one in counts} == {0, 1}


def test_unreadable_evidence_is_begun_anew(
    versions: VersionStore, caplog: pytest.LogCaptureFixture
) -> None:
    Path(versions.uri, "canaries.json").write_text("{")
    service = Service(versions, 1)
    service.chances = {0: USUAL, 1: BETTER}
    service.serve(10 * MOST_ANSWERS)
    assert versions.in_force().number("eagle3") == 1
    assert "canaries are judged anew" in caplog.records[0].message


def test_an_operators_decision_stands(versions: VersionStore) -> None:
    service = Service(versions, 7)
    service.chances = {0: USUAL, 1: SPOILT}
    versions.promote(1)
    service.serve(200)
    assert versions.in_force().number("eagle3") == 1


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


def test_the_interval_holds_as_often_as_it_says() -> None:
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


def test_a_board_that_is_away_is_told_once(
    versions: VersionStore, caplog: pytest.LogCaptureFixture
) -> None:
    def away() -> list[LoadReport]:
        raise RuntimeError("the board is away")

    judge = CanaryJudge(versions, away)
    judge.step()
    judge.step()
    assert [record.message for record in caplog.records] == [
        "canaries are not judged until this is fixed: the board is away"
    ]
