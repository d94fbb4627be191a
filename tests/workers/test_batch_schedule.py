"""The settings of a batch schedule: what they mean, and what is wrong with others."""

import pytest

from workers.batch_schedule import BatchSchedule, schedule_of, whole_numbers
from workers.methods import get_method

SCHEDULE = BatchSchedule((1, 5, 17), (4, 2, 0))


@pytest.mark.parametrize(("batch", "gamma"), [(1, 4), (4, 4), (5, 2), (16, 2), (17, 0), (500, 0)])
def test_each_batch_has_its_gamma(batch: int, gamma: int) -> None:
    assert SCHEDULE.gamma(batch) == gamma


@pytest.mark.parametrize(
    ("batches", "gammas", "said"),
    [
        ((), (), "batches must begin with 1"),
        ((2, 5), (4, 2), "batches must begin with 1"),
        ((1, 5, 5), (4, 2, 1), "batches must rise"),
        ((1, 9, 5), (4, 2, 1), "batches must rise"),
        ((1, 5), (4,), "a gamma for each of the 2 batches"),
        ((1, 5), (4, -1), "gammas must be at least 0"),
    ],
)
def test_what_is_no_schedule(batches: tuple[int, ...], gammas: tuple[int, ...], said: str) -> None:
    with pytest.raises(ValueError, match=f"stop 'batch_schedule': .*{said}"):
        BatchSchedule(batches, gammas)


def test_settings_are_whole_numbers() -> None:
    assert whole_numbers((1.0, 5.0), "batches") == (1, 5)
    with pytest.raises(ValueError, match="gammas must be whole numbers"):
        whole_numbers((1.0, 2.5), "gammas")


def test_every_method_with_a_number_has_a_schedule() -> None:
    ngram = get_method("ngram")
    assert schedule_of(ngram) == BatchSchedule((1,), (8,))
    settings = {"stop": {"batches": (1, 5), "gammas": (4, 0)}}
    changed = ngram.model_copy(update={"stop": "batch_schedule", "settings": settings})
    assert schedule_of(changed) == BatchSchedule((1, 5), (4, 0))
    with pytest.raises(ValueError, match="ngram: the stop 'confidence' decides step by step"):
        schedule_of(ngram.model_copy(update={"stop": "confidence"}))
