"""Which methods are predicted to meet a request's objectives."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar


@dataclass(frozen=True)
class Slo:
    """Objectives for a response's speed; None: none.

    first_seconds: to the first token. token_seconds: between later tokens, on average.
    """

    first_seconds: float | None = None
    token_seconds: float | None = None

    def __bool__(self) -> bool:
        return self != Slo()


class Predicted(Protocol):
    """Seconds that are predicted of a method: to the last token, to the first one, and between
    later ones."""

    predicted: float
    first: float
    per_token: float


Some = TypeVar("Some", bound=Predicted)


def in_time(candidates: Sequence[Some], deadline_seconds: float | None) -> list[Some]:
    """Return the candidates predicted to meet the deadline, or the fastest one if none is."""
    if deadline_seconds is None:
        return list(candidates)
    meeting = [one for one in candidates if one.predicted <= deadline_seconds]
    return meeting or [min(candidates, key=lambda one: one.predicted)]


def fast_enough(candidates: Sequence[Some], slo: Slo) -> list[Some]:
    """Return the candidates predicted to keep the objectives, or the one that misses them least if
    none does."""

    def excess(one: Some) -> float:
        objectives = (one.first, slo.first_seconds), (one.per_token, slo.token_seconds)
        return max((took / most for took, most in objectives if most is not None), default=0.0)

    keeping = [one for one in candidates if excess(one) <= 1.0]
    return keeping or [min(candidates, key=excess)]
