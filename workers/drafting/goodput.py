"""Which draft tokens bring the whole batch the most tokens a second: goodput as in TurboSpec (arXiv
2406.14066), for several drafters at once."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

WORTH = 1.03
"""Times the tokens a second that a draft must promise to be taken in the place of none, and a
learned drafter's in the place of foretold tokens: of many expectations the highest is too high."""
ONE = (1.0,)
"""Share of foretold tokens that come beside a draft, at most."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a learned drafter would do in this step.

    survival: of every sequence the probabilities that its draft tokens come, were it to draft for
    it, in draws that are equally likely [n, draws, tokens]; what pays is verified of each. seconds:
    of drafting for so many sequences. merged: the share of a sequence's foretold tokens that come
    beside what it drafts, where both are verified.
    """

    survival: Floats
    seconds: Callable[[int], float]
    merged: float = 0.0


@dataclass(frozen=True, slots=True)
class Choice:
    """lengths: of every sequence [n] the tokens that are worth verifying, foretold ones or, of the
    sequences `taken`, those of the drafter as well. offer: the index of the one that drafts for
    these, None where none does. goodput: tokens a second that are expected of the step. known: of
    every sequence [n] what is expected of its foretold tokens, were no offer taken. promised: draft
    tokens that are expected to come where an offer is taken, foretold ones included. hope: what no
    offer can exceed, over the goodput without any."""

    lengths: list[int]
    offer: int | None
    taken: list[int]
    goodput: float
    known: list[float]
    promised: float = 0.0
    hope: float = 0.0


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
    foretold = _Tokens(
        np.repeat(np.arange(count), [len(sure) for sure in survival]),
        np.asarray([one for of in survival for one in of], float),
    )
    most = len(foretold.sure) + max((math.prod(o.survival.shape[::2]) for o in offers), default=0)
    seconds = step(np.arange(count + most + 1, dtype=float))[count:]
    tokens = count + tokens_beside
    lengths, goodput = foretold.sorted().granted(count, tokens, seconds)
    known = [sum(sure[:length]) for sure, length in zip(survival, lengths, strict=True)]
    best = Choice(lengths, None, [], goodput, known)
    if not offers:
        return best
    merged = [offer.merged for offer in offers]
    for_all = _at_once(foretold, offers, merged, count, tokens, seconds)
    bounds = for_all if count == 1 else _at_once(foretold, offers, ONE, 1, tokens, seconds)
    best = replace(best, hope=float(bounds.max()) / goodput)
    for index in dict.fromkeys((int(for_all.argmax()), int(bounds.argmax()))):
        if bounds[index] <= max(best.goodput, WORTH * goodput):
            continue
        offer = offers[index]
        expected = offer.survival.mean(axis=1).sum(axis=1) + offer.merged * np.asarray(known)
        sets = _some((expected - known).tolist())
        either = foretold.or_drafted(offer).sorted()
        drafting = np.array([offer.seconds(len(mine)) for mine in sets])
        members = _members(sets, count)
        picked, lengths, came, found = either.best_of(members, tokens, seconds, drafting)
        if found > max(best.goodput, WORTH * goodput):
            best = replace(best, offer=index, taken=sets[picked], lengths=lengths)
            best = replace(best, goodput=found, promised=came - tokens)
    return best


def _at_once(
    foretold: "_Tokens",
    offers: Sequence[Offer],
    shares: Sequence[float],
    drafted_for: int,
    tokens: float,
    seconds: Floats,
) -> Floats:
    """Of each offer the goodput of the best of all that there is, drafted and these shares of
    foretold tokens, for the price of drafting for so many: with its share `merged` and for all what
    drafting for all brings, with 1 and for one sequence what no set of sequences can exceed."""
    known = len(foretold.sure)
    sure = np.zeros((len(offers), known + max(offer.survival.size for offer in offers)))
    weights = np.ones_like(sure)
    spent = np.empty((len(offers), 1))
    sure[:, :known] = np.outer(np.broadcast_to(shares, len(offers)), foretold.sure)
    for one, chances, rows, drafting in zip(offers, sure, weights, spent, strict=True):
        chances[known : known + one.survival.size] = one.survival.ravel()
        rows[known:] /= one.survival.shape[1]
        drafting[:] = one.seconds(drafted_for)
    order = np.argsort(-sure, axis=1)
    weights = np.take_along_axis(weights, order, axis=1)
    emitted = tokens + np.cumsum(weights * np.take_along_axis(sure, order, axis=1), axis=1)
    stepping = np.interp(np.cumsum(weights, axis=1), np.arange(len(seconds)), seconds)
    return np.asarray((emitted / (stepping + spent)).max(axis=1))


def _some(gains: Sequence[float]) -> list[list[int]]:
    """Sequences that an offer may be taken for: all; and of those that gain the half, the quarter,
    ..., the one that gains most. To try every number, or every set, would take longer than it
    wins."""
    if len(gains) == 1:
        return [[0]]
    order = sorted((i for i, gain in enumerate(gains) if gain > 0.0), key=lambda i: -gains[i])
    tried = [list(range(len(gains)))]
    count = len(order)
    while count:
        tried.append(order[:count])
        count = (count + 1) // 2 if count > 1 else 0
    return list({frozenset(mine): mine for mine in tried}.values())


def _members(sets: Sequence[Sequence[int]], count: int) -> NDArray[np.bool_]:
    """Which of so many are in each of the sets [s, n]."""
    members = np.zeros((len(sets), count), bool)
    for row, mine in zip(members, sets, strict=True):
        row[mine] = True
    return members


class _Tokens:
    """Tokens that may be verified.

    owners: of each its sequence [t]. sure: the probability that it comes [t]. weights: the share of
    draws that have it [t]. offered: whether it is there where an offer is taken, or where it is not
    [t].
    """

    def __init__(
        self,
        owners: NDArray[np.intp],
        sure: Floats,
        weights: Floats | None = None,
        offered: NDArray[np.bool_] | None = None,
    ) -> None:
        self.owners, self.sure = owners, sure
        self.weights = np.ones(len(sure)) if weights is None else weights
        self.offered = np.zeros(len(sure), bool) if offered is None else offered

    def or_drafted(self, offer: Offer) -> "_Tokens":
        """These, where the offer is not taken, and what there is where it is."""
        count, draws, tokens = offer.survival.shape
        drafted = np.repeat(np.arange(count), draws * tokens)
        there = np.ones(2 * len(self.sure) + len(drafted))
        there[2 * len(self.sure) :] /= draws
        return _Tokens(
            np.concatenate((self.owners, self.owners, drafted)),
            np.concatenate((self.sure, offer.merged * self.sure, offer.survival.ravel())),
            there,
            np.arange(len(there)) >= len(self.sure),
        )

    def sorted(self) -> "_Tokens":
        """The surest first, those of one sequence in order."""
        order = np.argsort(-self.sure, kind="stable")
        return _Tokens(
            self.owners[order], self.sure[order], self.weights[order], self.offered[order]
        )

    def best_of(
        self, taken: NDArray[np.bool_], tokens: float, seconds: Floats, drafting: Floats
    ) -> tuple[int, list[int], float, float]:
        """The set of sequences [s, n] for which an offer brings the most tokens a second, how many
        of the first are granted then, by sequence, the tokens that are expected, and those of a
        second; drafting: its seconds [s]."""
        weights = self.weights * (self.offered == taken[:, self.owners])
        emitted = tokens + np.cumsum(weights * self.sure, axis=1)
        stepping = np.interp(np.cumsum(weights, axis=1), np.arange(len(seconds)), seconds)
        goodput = emitted / (stepping + drafting[:, None])
        picked, last = np.unravel_index(int(goodput.argmax()), goodput.shape)
        granted = weights[picked, : last + 1]
        lengths = np.bincount(self.owners[: last + 1], granted, minlength=taken.shape[1])
        expected = float(emitted[picked, last])
        return int(picked), np.rint(lengths).astype(int).tolist(), expected, float(goodput.max())

    def granted(self, count: int, tokens: float, seconds: Floats) -> tuple[list[int], float]:
        """As many of the first as bring the most tokens a second, by sequence; and these.

        tokens: what is emitted besides. seconds: with 0, 1, 2, ... of them verified. They are a
        staircase: what does not pay now may pay with the next ones.
        """
        none = tokens / float(seconds[0])
        if not len(self.sure):
            return [0] * count, none
        emitted = tokens + (self.weights * self.sure).cumsum()
        goodput = emitted / np.interp(self.weights.cumsum(), np.arange(len(seconds)), seconds)
        best = int(goodput.argmax())
        if goodput[best] < WORTH * none:
            return [0] * count, none
        lengths = np.bincount(self.owners[: best + 1], self.weights[: best + 1], minlength=count)
        return np.rint(lengths).astype(int).tolist(), float(goodput[best])
