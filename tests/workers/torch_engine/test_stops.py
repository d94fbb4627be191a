"""Draft tokens by batch size, and settings that are refused."""

import pytest

from workers.torch_engine import registry


def by_batch(*settings: tuple[int, ...]) -> registry.Any:
    named = dict(zip(("batches", "gammas"), settings, strict=True))
    return registry.build("stop", "batch_schedule", None, named)


def test_each_batch_has_its_gamma() -> None:
    stop = by_batch((1, 5, 17), (4, 2, 0))
    found = [stop.limit(None, batch) for batch in (1, 4, 5, 16, 17, 500)]
    assert found == [4, 4, 2, 2, 0, 0]


@pytest.mark.parametrize(
    ("batches", "gammas", "said"),
    [
        ((), (), "batches must begin with 1"),
        ((2, 5), (4, 2), "batches must begin with 1"),
        ((1, 5, 5), (4, 2, 1), "batches must rise"),
        ((1, 5), (4,), "a gamma for each of the 2 batches"),
        ((1, 5), (4, -1), "gammas must be at least 0"),
    ],
)
def test_what_is_no_schedule(batches: tuple[int, ...], gammas: tuple[int, ...], said: str) -> None:
    with pytest.raises(ValueError, match=f"stop 'batch_schedule': .*{said}"):
        by_batch(batches, gammas)
