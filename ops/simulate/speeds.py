"""A base world's numbers under factors: how fast each method is, and which one is the best."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ops.common.boundary import InputError
from ops.simulate.world import ALL, PLAIN, PREFERRED, Base, Believed, Clients, Factor, Truth

Floats = NDArray[np.float64]
Line = tuple[tuple[float, ...], tuple[float, ...]]
Named = TypeVar("Named", Believed, Truth)

HIGH = 0.6
"""Temperature from which on acceptance is the base's `high`. Below, it is linear."""


@dataclass(frozen=True)
class Speeds:
    """The speed of m methods in k clusters for one kind of client.

    acceptance [m, k]: tokens per step. steps: seconds of a step by requests at once, prefills:
    seconds of a prompt by its tokens, both as points for each method. fails [m]: share of answers
    that fail half way; 1 if they hang. weights [k]: shares of requests. tokens [k]: expected output
    tokens.
    """

    methods: tuple[str, ...]
    acceptance: Floats
    steps: tuple[Line, ...]
    prefills: tuple[Line, ...]
    fails: Floats
    hangs: frozenset[str]
    weights: Floats
    tokens: Floats
    prompt_tokens: int

    @classmethod
    def of(cls, base: Base, clients: Clients) -> Self:
        """Return the base's own speeds."""
        weights = np.asarray(base.clusters.weights)
        return cls(
            methods=base.methods,
            acceptance=acceptance_at(base, clients.temperature),
            steps=tuple(_line(base.step_seconds[name]) for name in base.methods),
            prefills=tuple(_line(base.prefill_seconds[name]) for name in base.methods),
            fails=np.zeros(len(base.methods)),
            hangs=frozenset(),
            weights=weights / weights.sum(),
            tokens=np.minimum(base.output_tokens, clients.max_tokens),
            prompt_tokens=clients.prompt_tokens,
        )

    def step(self, counts: Mapping[str, int]) -> float:
        """Return the seconds of a step with these sequences by method: the mean of the methods'."""
        whole = sum(counts.values())
        each = {name: on_line(self.steps[self.methods.index(name)], whole) for name in counts}
        return sum(count * each[name] for name, count in counts.items()) / whole

    def prefill(self, method: str, tokens: float) -> float:
        """Return the seconds of reading a prompt."""
        return on_line(self.prefills[self.methods.index(method)], tokens)

    def seconds(self, method: str, cluster: int, beside: Mapping[str, int]) -> tuple[float, float]:
        """Return the expected seconds of reading a cluster's prompt and of decoding its answer.

        beside: sequences by method that run on the same replica.
        """
        counts = {**beside, method: beside.get(method, 0) + 1}
        accepted = self.acceptance[self.methods.index(method), cluster]
        steps = max(0.0, self.tokens[cluster] - 1.0) / accepted
        return self.prefill(method, self.prompt_tokens), float(steps) * self.step(counts)

    def mean_request(self) -> Floats:
        """Return the expected seconds [m] of the mean request alone."""
        clusters = range(len(self.weights))
        each = [[sum(self.seconds(name, k, {})) for k in clusters] for name in self.methods]
        return np.asarray(each) @ self.weights

    def worth(self, method: str, seconds: float) -> float:
        """Return the seconds until a complete answer if each that fails half way is asked again."""
        fails = float(self.fails[self.methods.index(method)])
        return seconds * (1.0 - fails / 2.0) / (1.0 - fails) if fails < 1.0 else float("inf")

    def best(self) -> str:
        """Return the method that is the best on the mean request, its failures included."""
        means = zip(self.methods, self.mean_request(), strict=True)
        return min(means, key=lambda one: self.worth(one[0], float(one[1])))[0]

    def under(self, factors: Sequence[Factor]) -> "Speeds":
        """Return the speeds under factors on these. Raises InputError if one cannot be reached.

        `best_by` compares with what all other factors make of the methods.
        """
        changed = self
        for factor in factors:
            for method in self.methods if factor.method == ALL else (factor.method,):
                changed = changed._times(self.methods.index(method), factor)
        for factor in factors:
            if isinstance(factor, Truth) and factor.best_by is not None:
                changed = changed._best_by(factor.method, factor.best_by)
        return changed

    def _times(self, m: int, factor: Factor) -> "Speeds":
        accepted = self.acceptance.copy()
        where = slice(None) if factor.clusters is None else list(factor.clusters)
        if self.methods[m] != PLAIN:
            accepted[m, where] = np.maximum(1.0, accepted[m, where] * factor.acceptance)
        changed = replace(
            self,
            acceptance=accepted,
            steps=_scaled(self.steps, m, factor.step),
            prefills=_scaled(self.prefills, m, factor.prefill),
        )
        if not isinstance(factor, Truth):
            return changed
        fails = self.fails.copy()
        fails[m] = 1.0 if factor.hangs else max(fails[m], factor.fails)
        hangs = self.hangs | {self.methods[m]} if factor.hangs else self.hangs
        return replace(changed, fails=fails, hangs=hangs)

    def _best_by(self, method: str, factor: float) -> "Speeds":
        m, mean = self.methods.index(method), self.mean_request()
        wanted = float(np.delete(mean, m).min()) / factor - self.prefill(method, self.prompt_tokens)
        decoding = float(mean[m]) - self.prefill(method, self.prompt_tokens)
        if wanted <= 0.0 or decoding <= 0.0:
            raise InputError(
                f"best_by: {method} cannot be {factor:g} times better by its steps, because its "
                "prefill alone takes longer; use a smaller factor or shorter prompts"
            )
        return replace(self, steps=_scaled(self.steps, m, wanted / decoding))


class Changing:
    """The speeds of a world, which its events change."""

    def __init__(self, base: Speeds, truth: Sequence[Truth]) -> None:
        self._base = base
        self._factors: dict[str, list[Truth]] = {}
        self.change(truth)

    def change(self, truth: Sequence[Truth]) -> None:
        """Replace the factors of the methods that `truth` names."""
        told = named(truth, self._base)
        for factor in told:
            self._factors[factor.method] = [one for one in told if one.method == factor.method]
        self.now = self._base.under([one for every in self._factors.values() for one in every])
        self.best = self.now.best()


def named(factors: Sequence[Named], base: Speeds) -> list[Named]:
    """Return factors with the name of the method that is the best by the base for `preferred`."""
    best = base.best()
    return [
        one.model_copy(update={"method": best}) if one.method == PREFERRED else one
        for one in factors
    ]


def acceptance_at(base: Base, temperature: float) -> Floats:
    """Return the base's tokens per step [m, k] at a temperature."""
    greedy, high = (
        np.asarray([table[name] for name in base.methods])
        for table in (base.acceptance.greedy, base.acceptance.high)
    )
    share = min(1.0, temperature / HIGH)
    return np.asarray((1.0 - share) * greedy + share * high)


def on_line(line: Line, at: float) -> float:
    """Return the value on a line through points, which goes on beyond both ends."""
    xs, ys = line
    if len(xs) == 1:
        return ys[0]
    right = min(max(1, bisect_left(xs, at)), len(xs) - 1)
    slope = (ys[right] - ys[right - 1]) / (xs[right] - xs[right - 1])
    return ys[right] + slope * (at - xs[right])


def _line(points: Mapping[int, float]) -> Line:
    xs = sorted(points)
    return tuple(xs), tuple(points[x] for x in xs)


def _scaled(lines: tuple[Line, ...], m: int, factor: float) -> tuple[Line, ...]:
    xs, ys = lines[m]
    return (*lines[:m], (xs, tuple(y * factor for y in ys)), *lines[m + 1 :])
