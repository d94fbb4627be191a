"""Which draft tokens bring the whole batch the most tokens a second: goodput as in TurboSpec (arXiv
2406.14066), for several drafters at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

WORTH = 1.03
"""A draft must be expected to bring so many times the tokens a second of none, and a learned
drafter's so many times those of looked-up tokens: of many expectations the highest is too high."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A draft that a learned drafter could make in this step.

    probabilities: of every sequence's draft tokens, each with all before it [n, tokens], falling.
    seconds: of drafting for so many sequences.
    """

    probabilities: Floats
    seconds: Callable[[int], float]


@dataclass(frozen=True, slots=True)
class Choice:
    """The draft tokens that pay.

    lengths: tokens of each sequence that are worth verifying [n]. offer: index of the one taken for
    the sequences `taken`, None if no drafter drafts. goodput: expected tokens a second of the step.
    expected: accepted draft tokens of the batch, where an offer is taken. best_offer: goodput of
    the best offer over the goodput without any; 0 where there was none.
    """

    lengths: list[int]
    offer: int | None
    taken: list[int]
    goodput: float
    expected: float = 0.0
    best_offer: float = 0.0


def choose(
    looked_up: Sequence[Sequence[float]],
    offers: Sequence[Offer],
    step: Callable[[Floats], Floats],
    other_tokens: float = 0.0,
) -> Choice:
    """Choose among looked-up tokens alone and each offer for the sequences that gain most from it,
    with look-ups for the others.

    looked_up: by sequence, the probabilities that a looked-up token and all before it are accepted,
    falling. step: seconds of steps that verify so many rows [r]. other_tokens: emitted by other
    sequences of the same step.
    """
    count = len(looked_up)
    everyone = np.arange(count)
    owners = np.repeat(everyone, [len(one) for one in looked_up])
    found = np.asarray([p for one in looked_up for p in one], float)
    most = max((offer.probabilities.size for offer in offers), default=0)
    seconds = step(np.arange(count + len(found) + most + 1, dtype=float))[count:]
    batch = _Batch(count, count + other_tokens, seconds)
    plain = batch.tokens / float(seconds[0])
    best = Choice([0] * count, None, [], plain)
    if len(found):
        all_there = np.ones((1, len(found)), bool)
        _, lengths, _, goodput = batch.best(owners, found, all_there, np.zeros(1))
        if goodput >= WORTH * plain:
            best = replace(best, lengths=lengths, goodput=goodput)
    without, fastest = best.goodput, 0.0
    alone = np.bincount(owners, found, minlength=count)
    for index, offer in enumerate(offers):
        gains = offer.probabilities.sum(axis=1) - alone
        sets = _sets(gains.tolist())
        members = np.zeros((len(sets), count), bool)
        for row, mine in zip(members, sets, strict=True):
            row[mine] = True
        drafted = np.repeat(everyone, offer.probabilities.shape[1])
        picked, lengths, emitted, goodput = batch.best(
            np.concatenate((owners, drafted)),
            np.concatenate((found, offer.probabilities.ravel())),
            np.concatenate((~members[:, owners], members[:, drafted]), axis=1),
            np.array([offer.seconds(len(mine)) for mine in sets]),
        )
        fastest = max(fastest, goodput)
        if goodput > max(best.goodput, WORTH * without):
            best = Choice(lengths, index, sets[picked], goodput, emitted - batch.tokens)
    return replace(best, best_offer=fastest / without)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Sequences that decide together. tokens: emitted by a step without drafts. seconds: of steps
    that verify 0, 1, 2, ... draft tokens."""

    count: int
    tokens: float
    seconds: Floats

    def best(
        self,
        owners: NDArray[np.intp],
        probabilities: Floats,
        there: NDArray[np.bool_],
        drafting: Floats,
    ) -> tuple[int, list[int], float, float]:
        """Return the best of several sets of sequences to draft for, the tokens that each sequence
        is granted, the tokens emitted, and the goodput.

        owners, probabilities: of tokens that may be verified [t]. there: whether a set has each
        [s, t]. drafting: seconds of each set [s]. The most probable tokens are granted first.
        Seconds are a staircase: what does not pay now may pay with the next ones.
        """
        order = np.argsort(-probabilities, kind="stable")
        there = there[:, order]
        emitted = self.tokens + np.cumsum(there * probabilities[order], axis=1)
        goodput = emitted / (self.seconds[np.cumsum(there, axis=1)] + drafting[:, None])
        picked, last = np.unravel_index(int(goodput.argmax()), goodput.shape)
        granted = owners[order][: last + 1][there[picked, : last + 1]]
        lengths = np.bincount(granted, minlength=self.count).tolist()
        return int(picked), lengths, float(emitted[picked, last]), float(goodput[picked, last])


def _sets(gains: Sequence[float]) -> list[list[int]]:
    """Return the sequences that an offer may be taken for: all; and of those that gain the best
    half, quarter, ..., one. Trying every set would take longer than it wins."""
    order = sorted((i for i, gain in enumerate(gains) if gain > 0.0), key=lambda i: -gains[i])
    tried, count = [list(range(len(gains)))], len(order)
    while count:
        tried.append(order[:count])
        count = (count + 1) // 2 if count > 1 else 0
    return list({frozenset(mine): mine for mine in tried}.values())
