"""The samples of a round: when there are enough, and which of them train and judge a head."""

from sampled import sample

from deployments.head_training import trainer
from deployments.head_training.trainer import (
    are_enough,
    held_samples,
    lacking,
    round_samples,
)
from schemas import LEAST_CONVERSATIONS, PastRounds, Sample

LEARNED = "1" * 64
"""A conversation that is not held."""


def test_a_flood_of_one_kind_does_not_judge_alone(monkeypatch):
    monkeypatch.setattr(trainer, "MOST_HELD", 6)
    flood = [sample(f"flood {i}", conversation="0" * 64, time=100.0 + i) for i in range(20)]
    other = [sample(f"other {i}", conversation="0" * 64, cluster=1, time=i) for i in range(2)]
    assert all(each.held for each in flood)
    judging = held_samples([*flood, *other])
    assert [each.time for each in judging] == [0.0, 1.0, 116.0, 117.0, 118.0, 119.0]


def test_a_round_mixes_older_samples_with_the_newest(monkeypatch):
    monkeypatch.setattr(trainer, "MOST_TOKENS", 60)
    kept = [sample(str(i), conversation=LEARNED, time=float(i)) for i in range(20)]

    def times(samples: list[Sample]) -> list[float]:
        return sorted(each.time for each in samples)

    assert times(round_samples(kept, 0.0)) == [0.0, *range(15, 20)]
    chosen = times(round_samples(kept, 9.0))
    assert [time for time in chosen if time > 9] == [17, 18, 19]
    assert len(chosen) == 6
    alone = times(round_samples(kept, 18.0))
    assert alone[-1] == 19
    assert len(alone) == 6


def test_rounds_in_vain_wait_for_more_samples_each_time(monkeypatch):
    monkeypatch.setattr(trainer, "ROUND_TOKENS", 10)
    kept = [sample(str(i), conversation=LEARNED, time=float(i)) for i in range(100)]
    assert are_enough(kept, PastRounds(seen=97.0, in_vain=0))
    assert not are_enough(kept, PastRounds(seen=98.0, in_vain=0))
    assert are_enough(kept, PastRounds(seen=91.0, in_vain=2))
    assert not are_enough(kept, PastRounds(seen=92.0, in_vain=2))
    assert are_enough(kept, PastRounds(seen=49.0, in_vain=60)), (
        "never more than half of what is kept"
    )
    assert not are_enough(kept, PastRounds(seen=50.0, in_vain=60))


def test_only_conversations_that_the_judge_sees_count(monkeypatch):
    """A long conversation's turns are the newest held answers, and answers of one token are none
    to draft for."""
    monkeypatch.setattr(trainer, "MOST_HELD", LEAST_CONVERSATIONS)
    learned = sample("learned", conversation=LEARNED)

    def held(count: int, **fields: object) -> list[Sample]:
        conversations = (f"{16 + i:064d}" for i in range(count))
        return [sample(each, conversation="0" * 16 + each[16:], **fields) for each in conversations]

    enough = held(LEAST_CONVERSATIONS)
    assert lacking([learned, *enough]) is None
    assert lacking(enough) is not None
    turns = [sample(f"turn {i}", conversation="0" * 64, time=2000.0 + i) for i in range(2)]
    assert lacking([learned, *enough, *turns]) is not None
    assert lacking([learned, *held(LEAST_CONVERSATIONS, answer_token_ids=(1,))]) is not None


def test_an_answer_that_fills_half_of_a_round_is_left_out(monkeypatch):
    monkeypatch.setattr(trainer, "MOST_TOKENS", 60)
    monkeypatch.setattr(trainer, "ROUND_TOKENS", 10)
    large = sample("large", tokens=32, conversation=LEARNED, time=100.0)
    kept = [sample(str(i), conversation=LEARNED, time=float(i)) for i in range(20)]
    assert large not in round_samples([*kept, large], 17.0)
    assert {sample.time for sample in round_samples([*kept, large], 17.0)} > {18.0, 19.0}
    assert not are_enough([*kept, large], PastRounds(seen=50.0, in_vain=0))
    assert lacking([large]) is not None
