"""Which heads are accepted on held answers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.training.counting import emptied, write_replay
from training.heads import StoredHead, load_head
from training.judge import LARGE_GROUP, Measured, judge, verdict
from training.teacher import Teacher
from training.tune import read_replay


def test_each_kind_of_replayed_answers_is_a_group_that_counts(bundle, samples, tmp_path):
    """A tenth of twenty answers would be too few to count."""
    kinds = [*["code"] * 20, *["tiny"] * 5, *["chat"] * (len(samples) - 25)]
    file = write_replay(samples, kinds, tmp_path / "replay.jsonl")
    learned, replayed = read_replay(file)
    assert {s.id for s in learned}.isdisjoint(s.id for s in replayed)
    assert len(learned) + len(replayed) == len(samples)
    assert {s.id for s in samples if s.held} <= {s.id for s in replayed}
    held = Counter(sample.fit_id for sample in replayed)
    assert held["replay code"] == LARGE_GROUP
    assert held["replay tiny"] < LARGE_GROUP < held["replay chat"] < len(samples) / 5

    teacher = Teacher.load(bundle / "target")
    head = load_head(StoredHead(bundle / "eagle3", "eagle3"), teacher)
    served = [sample for sample in samples if sample.held]
    found = judge(teacher, head, head, [*served, *replayed])
    counts = {
        name: group.conversations for name, group in found.by_group.items() if "replay" in name
    }
    assert counts == {"replay": held.total(), **held}


def test_a_candidate_is_refused_where_a_large_group_loses() -> None:
    assert verdict(_measured(19)).reason == "19 held-out conversations are too few: 20 are needed"
    assert verdict([*_measured(9, "a", 2), *_measured(40, "b", 8)]).better
    lost = verdict([*_measured(10, "a", 2), *_measured(40, "b", 8)])
    assert lost.reason == "worse beyond the interval in a"
    forgot = verdict([*_measured(40, "b", 8), *_measured(10, "replay", 2)])
    assert forgot.reason == "worse beyond the interval in replay"
    assert verdict(_measured(40, "replay", 8)).overall is None
    slightly = [*_measured(10, "a", 2), *_measured(40, "b", 6)]
    assert "by 10% beyond the interval" in str(verdict(slightly, new=True).reason)
    assert verdict([*_measured(10, "a", 2), *_measured(40, "b", 9)], new=True).better


def test_a_loss_in_one_of_many_groups_has_to_be_clearer_than_in_one_of_two() -> None:
    served = _measured(40, "b", 8)

    def kind(name: str, tokens: Sequence[int]) -> list[Measured]:
        groups = ("replay", f"replay {name}")
        pairs = [((1000, 500), (candidate, 500)) for candidate in tokens]
        return [Measured(f"{name}{i}", groups, *pair) for i, pair in enumerate(pairs)]

    slight = kind("a", (930, 940, 960, 960, 970, 980, 980, 980, 985, 990))
    assert "replay a" in str(verdict([*served, *slight]).reason)
    others = [m for i in range(10) for m in kind(f"c{i}", (990, 1000, 1010) * 4)]
    assert verdict([*served, *slight, *others]).better
    clear = kind("a", (910,) * 5 + (940,) * 5)
    assert "replay a" in str(verdict([*served, *clear, *others]).reason)


@pytest.mark.parametrize(("tokens", "better"), [(149, True), (145, False)])
def test_a_head_may_lose_a_little_in_what_was_not_served(tokens: int, better: bool) -> None:
    """In one kind, by 0.7% and not by 3.3%; over all and in what was served, nothing."""
    gained = _measured(40, "b", 8)
    lost = [Measured(f"r{i}", ("replay a",), (150, 100), (tokens, 100)) for i in range(40)]
    assert verdict([*gained, *lost]).better is better
    lost = [replace(m, groups=("replay",)) for m in lost]
    assert verdict([*gained, *lost]).reason == "worse beyond the interval in replay"
    served = [Measured(f"a{i}", ("a",), (150, 100), (tokens, 100)) for i in range(10)]
    assert verdict([*_measured(80, "b", 8), *served]).reason == "worse beyond the interval in a"


def test_replayed_answers_compare_with_the_bundles_own_head(bundle, samples, tmp_path):
    """Two rounds that each lose a little may not lose more than one."""
    teacher = Teacher.load(bundle / "target")
    own = load_head(StoredHead(bundle / "eagle3", "eagle3"), teacher)
    spoilt = load_head(StoredHead(emptied(bundle / "eagle3", tmp_path / "s"), "eagle3"), teacher)
    held = [s for s in samples if s.held]
    replayed = [s.model_copy(update={"fit_id": "replay"}) for s in held]
    found = judge(teacher, spoilt, spoilt, [*held, *replayed], own)
    replay, served = found.by_group["replay"], found.by_group["cluster 0"]
    assert replay.candidate < replay.parent
    assert served.candidate == served.parent


def _measured(count: int, group: str = "a", candidate: int = 8) -> list[Measured]:
    """Two answers of each conversation, whose parent has 5 of 10 tokens accepted."""
    names = [f"{group}{i}" for i in range(count) for _ in range(2)]
    return [Measured(name, (group,), (15, 10), (10 + candidate, 10)) for name in names]
