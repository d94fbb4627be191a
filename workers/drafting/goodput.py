"""Which draft tokens bring the whole batch the most tokens a second: goodput as in TurboSpec (arXiv
2406.14066), for several drafters at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Offer:
    """What a learned drafter would do in this step.

    expected: accepted tokens [n], were it to draft for the sequence. nodes: draft tokens of one
    sequence. seconds: of drafting for so many sequences. merged: the share of a sequence's foretold
    tokens that come beside what it drafts, where both are verified.
    """

    expected: Sequence[float]
    nodes: float
    seconds: Callable[[int], float]
    merged: float = 0.0


@dataclass(frozen=True, slots=True)
class Choice:
    """lengths: of every sequence [n] the foretold tokens that are verified. offer: the index of
    the one that drafts for the sequences `taken`, None where none does. goodput: tokens a second
    that are expected of the step. known: of every sequence [n] what is expected of its foretold
    tokens, were no offer taken."""

    lengths: list[int]
    offer: int | None
    taken: list[int]
    goodput: float
    known: list[float]


def choose(
    survival: Sequence[Sequence[float]],
    offers: Sequence[Offer],
    step: Callable[[Floats], Floats],
    tokens_beside: float = 0.0,
) -> Choice:
    """The best of: foretold tokens alone, and each offer for the sequences where it gains most
    beside foretold tokens for the others.

    survival: by sequence, the probabilities that a foretold token and all before it come, none
    above the one before. step: seconds of steps that verify so many rows [r].
    """
    count = len(survival)
    most = (
        sum(map(len, survival)) + count + round(count * max((o.nodes for o in offers), default=0))
    )
    foretold = _Foretold(survival, step(np.arange(most + 1, dtype=float)))
    lengths, goodput = foretold.granted(np.ones(count, bool), count + tokens_beside, count, 0.0)
    known = [sum(sure[:length]) for sure, length in zip(survival, lengths, strict=True)]
    best = Choice(lengths, None, [], goodput, known)
    for index, offer in enumerate(offers):
        expected = [e + offer.merged * k for e, k in zip(offer.expected, known, strict=True)]
        gains = [e - k for e, k in zip(expected, known, strict=True)]
        for mine in _some(expected, gains):
            others = np.ones(count, bool)
            others[mine] = False
            tokens = count + tokens_beside + sum(expected[i] for i in mine)
            rows = count + round(offer.nodes * len(mine))
            lengths, goodput = foretold.granted(others, tokens, rows, offer.seconds(len(mine)))
            if goodput > best.goodput:
                best = Choice(lengths, index, mine, goodput, known)
    return best


def _some(expected: Sequence[float], gains: Sequence[float]) -> list[list[int]]:
    """Sequences that an offer may be taken for: all; and all, half, a quarter, ..., one of those
    that gain, the ones first that gain most, or of which most is expected. To try every number, or
    every set, would take longer than it wins."""
    gaining = [i for i, gain in enumerate(gains) if gain > 0.0]
    orders = [sorted(gaining, key=by.__getitem__, reverse=True) for by in (gains, expected)]
    tried = [list(range(len(gains)))]
    count = len(gaining)
    while count:
        tried += [order[:count] for order in orders]
        count = (count + 1) // 2 if count > 1 else 0
    return list({frozenset(mine): mine for mine in tried}.values())


class _Foretold:
    """All sequences' foretold tokens, the surest first; those of one sequence stay in order.

    step: seconds of steps that verify 0, 1, 2, ... rows.
    """

    def __init__(self, survival: Sequence[Sequence[float]], step: Floats) -> None:
        self._count, self._step = len(survival), step
        owners = np.repeat(np.arange(self._count), [len(sure) for sure in survival])
        sure = np.asarray([one for of in survival for one in of], float)
        order = np.argsort(-sure, kind="stable")
        self._owners, self._sure = owners[order], sure[order]

    def granted(
        self, among: NDArray[np.bool_], tokens: float, rows: int, seconds: float
    ) -> tuple[list[int], float]:
        """As many of the surest as bring the most tokens a second, by sequence; and these.

        among: the sequences [n] that get any. tokens, rows, seconds: what is emitted, verified and
        spent besides. Seconds are a staircase: what does not pay now may pay with the next ones.
        """
        if not len(self._owners):
            return [0] * self._count, tokens / float(self._step[rows] + seconds)
        mine = among[self._owners]
        emitted = np.concatenate(([tokens], tokens + np.cumsum(self._sure[mine])))
        goodput = emitted / (self._step[rows : rows + len(emitted)] + seconds)
        best = int(np.argmax(goodput))
        lengths = np.bincount(self._owners[mine][:best], minlength=self._count)
        return lengths.tolist(), float(goodput[best])
