"""Draft tokens by batch size: the settings of the stop `batch_schedule`."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from schemas import MethodSpec

STOP = "batch_schedule"
"""Its name as a MethodSpec's `stop`."""


@dataclass(frozen=True)
class BatchSchedule:
    """Draft gammas[i] tokens a step from batches[i] sequences on; 0 is plain decoding.

    Raises ValueError naming the wrong setting.
    """

    batches: tuple[int, ...]
    gammas: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.batches or self.batches[0] != 1:
            raise ValueError(
                f"stop '{STOP}': batches must begin with 1, so that every batch has a number of "
                f"draft tokens, not {list(self.batches)}"
            )
        if list(self.batches) != sorted(set(self.batches)):
            raise ValueError(f"stop '{STOP}': batches must rise, unlike {list(self.batches)}")
        if len(self.gammas) != len(self.batches):
            raise ValueError(
                f"stop '{STOP}': give a gamma for each of the {len(self.batches)} batches, "
                f"not {list(self.gammas)}"
            )
        if min(self.gammas) < 0:
            raise ValueError(f"stop '{STOP}': gammas must be at least 0, unlike {self.gammas}")

    def gamma(self, batch: int) -> int:
        """Return the draft tokens of one sequence in a step of `batch` sequences."""
        return self.gammas[bisect_right(self.batches, batch) - 1]


def whole_numbers(values: Sequence[float], setting: str) -> tuple[int, ...]:
    """Return a setting's values as integers. Raises ValueError where one is not whole."""
    if any(value != int(value) for value in values):
        raise ValueError(f"stop '{STOP}': {setting} must be whole numbers, not {list(values)}")
    return tuple(int(value) for value in values)


def schedule_of(spec: MethodSpec) -> BatchSchedule:
    """Return a method's draft tokens by batch size; a constant for the stop 'fixed'.

    Raises ValueError naming the wrong setting, and for any other stop.
    """
    settings = spec.settings.get("stop", {})
    if spec.stop == "fixed":
        return BatchSchedule((1,), (int(settings.get("gamma", 4)),))  # type: ignore[arg-type]
    if spec.stop != STOP:
        raise ValueError(
            f"{spec.name}: the stop {spec.stop!r} decides step by step how much is drafted; a "
            f"number by batch size has {STOP!r} or 'fixed'"
        )
    listed = []
    for name in ("batches", "gammas"):
        values = settings.get(name, ())
        if not isinstance(values, tuple):
            raise ValueError(f"{spec.name}: stop '{STOP}': {name} must be a list, not {values!r}")
        listed.append(whole_numbers(values, name))
    return BatchSchedule(*listed)
