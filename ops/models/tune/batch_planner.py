"""How much to draft at which batch size: the most tokens per second, from measured steps.

Goodput, as SmartSpec and TurboSpec call it (arXiv 2406.14066): the tokens that a step emits over
the seconds that it takes. How many tokens a step emits depends on the number of draft tokens, how
long it takes on the batch as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log, sqrt
from statistics import fmean, median, stdev

from scipy.special import stdtrit

from workers.batch_schedule import BatchSchedule

CONFIDENCE = 0.975
"""One-sided: beyond noise is what a t-test over the rounds calls so."""


@dataclass(frozen=True)
class BatchCosts:
    """tokens: a step's emitted tokens per sequence, by gamma. seconds: of a step by (batch, gamma),
    one per round; the rounds of one batch are paired. Every gamma at every batch."""

    tokens: Mapping[int, float]
    seconds: Mapping[tuple[int, int], Sequence[float]]

    @property
    def batches(self) -> list[int]:
        """The measured batch sizes, rising."""
        return sorted({batch for batch, _ in self.seconds})

    def step_seconds(self, batch: float, gamma: int) -> float:
        """Median over the rounds, between measured batches linear."""
        below = max(known for known in self.batches if known <= batch)
        above = min(known for known in self.batches if known >= batch)
        low, high = (median(self.seconds[known, gamma]) for known in (below, above))
        share = (batch - below) / (above - below) if above > below else 0.0
        return low + share * (high - low)

    def tokens_per_s(self, batch: float, gamma: int) -> float:
        """Of the whole batch."""
        return batch * self.tokens[gamma] / self.step_seconds(batch, gamma)

    def surely_faster(self, batch: int, gamma: int, other: int) -> bool:
        """Whether gamma's tokens per second at a measured batch are above the other's by more than
        the rounds differ; never with a single round."""
        pairs = zip(self.seconds[batch, gamma], self.seconds[batch, other], strict=True)
        gains = [log(theirs / ours) + self._gain(gamma, other) for ours, theirs in pairs]
        if len(gains) < 2:
            return False
        error = stdev(gains) / sqrt(len(gains))
        return fmean(gains) > float(stdtrit(len(gains) - 1, CONFIDENCE)) * error

    def _gain(self, gamma: int, other: int) -> float:
        return log(self.tokens[gamma] / self.tokens[other])


def plan_batches(costs: BatchCosts) -> BatchSchedule:
    """The schedule with the greatest product of goodputs over the measured batches, none drafting
    more than a smaller batch does unless the smaller gamma is surely faster there and the greater
    one here."""
    chosen = _best_path(costs)
    batches, gammas = [1], [chosen[0]]
    measured = costs.batches
    for below, above, before, after in zip(
        measured, measured[1:], chosen, chosen[1:], strict=False
    ):
        if after != before:
            batches.append(_crossing(costs, (below, before), (above, after)))
            gammas.append(after)
    return BatchSchedule(tuple(batches), tuple(gammas))


def _best_path(costs: BatchCosts) -> list[int]:
    """The gamma of each measured batch, by dynamic programming over them."""
    gammas, batches = sorted(costs.tokens), costs.batches
    paths = {gamma: [gamma] for gamma in gammas}
    value = {gamma: log(costs.tokens_per_s(batches[0], gamma)) for gamma in gammas}
    for before, batch in pairwise(batches):
        longer, worth = dict[int, list[int]](), dict[int, float]()
        for gamma in gammas:
            # of equals the greatest: it forbids the least that follows
            best = max(
                (last for last in gammas if _may_follow(costs, (before, last), (batch, gamma))),
                key=lambda last: (value[last], last),
            )
            longer[gamma] = [*paths[best], gamma]
            worth[gamma] = value[best] + log(costs.tokens_per_s(batch, gamma))
        paths, value = longer, worth
    return paths[max(gammas, key=lambda gamma: (value[gamma], -gamma))]


def _may_follow(costs: BatchCosts, smaller: tuple[int, int], larger: tuple[int, int]) -> bool:
    (below, before), (above, after) = smaller, larger
    return after <= before or (
        costs.surely_faster(below, before, after) and costs.surely_faster(above, after, before)
    )


def _crossing(costs: BatchCosts, smaller: tuple[int, int], larger: tuple[int, int]) -> int:
    """The first batch behind the smaller one at which the larger one's gamma is no slower."""
    (below, before), (above, after) = smaller, larger
    for batch in range(below + 1, above):
        if costs.tokens_per_s(batch, after) >= costs.tokens_per_s(batch, before):
            return batch
    return above
