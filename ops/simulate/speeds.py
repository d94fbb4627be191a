"""How fast a world's methods are, and which one is the best."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ops.common.boundary import InputError
from ops.simulate.world import ALL, PLAIN, PREFERRED, Base, Believed, Clients, Factor, Truth

Floats = NDArray[np.float64]
Line = Mapping[int, float]
Named = TypeVar("Named", Believed, Truth)

HIGH = 0.6
"""Temperature from which on acceptance is the base's `high`. Below, it is linear."""


@dataclass(frozen=True)
class Speed:
    """The speed of one method in k clusters.

    acceptance [k]: tokens per step. steps: seconds of a step by requests at once. prefills: seconds
    of a prompt by its tokens. fails: share of answers that fail half way; 1 if they hang.
    """

    acceptance: Floats
    steps: Line
    prefills: Line
    fails: float = 0.0
    hangs: bool = False

    def times(self, factor: Factor) -> Self:
        """Return the speed under a factor, but for its `best_by`."""
        accepted = self.acceptance.copy()
        where = slice(None) if factor.clusters is None else list(factor.clusters)
        accepted[where] = np.maximum(1.0, accepted[where] * factor.acceptance)
        steps, prefills = _scaled(self.steps, factor.step), _scaled(self.prefills, factor.prefill)
        changed = replace(self, acceptance=accepted, steps=steps, prefills=prefills)
        if not isinstance(factor, Truth):
            return changed
        fails = 1.0 if factor.hangs else max(self.fails, factor.fails)
        return replace(changed, fails=fails, hangs=self.hangs or factor.hangs)


@dataclass(frozen=True)
class Speeds:
    """The speeds of all methods for one kind of client.

    weights [k]: shares of requests. tokens [k]: expected output tokens.
    """

    methods: Mapping[str, Speed]
    weights: Floats
    tokens: Floats
    prompt_tokens: int

    @classmethod
    def of(cls, base: Base, clients: Clients) -> Self:
        """Return the base's own speeds."""
        share = min(1.0, clients.temperature / HIGH)
        greedy, high = base.acceptance.greedy, base.acceptance.high
        methods = {
            name: Speed(
                (1.0 - share) * np.asarray(greedy[name]) + share * np.asarray(high[name]),
                base.step_seconds[name],
                base.prefill_seconds[name],
            )
            for name in base.methods
        }
        weights = np.asarray(base.clusters.weights)
        tokens = np.minimum(base.output_tokens, clients.max_tokens)
        return cls(methods, weights / weights.sum(), tokens, clients.prompt_tokens)

    def step(self, counts: Mapping[str, int]) -> float:
        """Return the seconds of a step with these sequences by method: the mean of the methods'."""
        whole = sum(counts.values())
        each = [n * on_line(self.methods[name].steps, whole) for name, n in counts.items()]
        return sum(each) / whole

    def prefill(self, method: str, tokens: float) -> float:
        """Return the seconds of reading a prompt."""
        return on_line(self.methods[method].prefills, tokens)

    def seconds(self, method: str, cluster: int, beside: Mapping[str, int]) -> tuple[float, float]:
        """Return the expected seconds of reading a cluster's prompt and of decoding its answer.

        beside: sequences by method that run on the same replica.
        """
        counts = {**beside, method: beside.get(method, 0) + 1}
        steps = max(0.0, self.tokens[cluster] - 1.0) / self.methods[method].acceptance[cluster]
        return self.prefill(method, self.prompt_tokens), float(steps) * self.step(counts)

    def mean_request(self, method: str) -> float:
        """Return the expected seconds of the mean request alone."""
        each = [sum(self.seconds(method, k, {})) for k in range(len(self.weights))]
        return float(np.dot(each, self.weights))

    def worth(self, method: str, seconds: float) -> float:
        """Return the seconds until a complete answer if each that fails half way is asked again."""
        fails = self.methods[method].fails
        return seconds * (1.0 - fails / 2.0) / (1.0 - fails) if fails < 1.0 else float("inf")

    def best(self) -> str:
        """Return the method that is the best on the mean request, its failures included."""
        return min(self.methods, key=lambda name: self.worth(name, self.mean_request(name)))

    def under(self, factors: Sequence[Factor]) -> Self:
        """Return the speeds under factors on these. Raises InputError if one cannot be reached.

        `best_by` compares with what all other factors make of the methods.
        """
        methods = dict(self.methods)
        for factor in factors:
            for name in self.methods if factor.method == ALL else [factor.method]:
                methods[name] = methods[name].times(
                    factor.model_copy(update={"acceptance": 1.0}) if name == PLAIN else factor
                )
        changed = replace(self, methods=methods)
        for factor in factors:
            if isinstance(factor, Truth) and factor.best_by is not None:
                changed = changed._best_by(factor.method, factor.best_by)
        return changed

    def _best_by(self, method: str, factor: float) -> Self:
        best_other = min(self.mean_request(name) for name in self.methods if name != method)
        prefill = self.prefill(method, self.prompt_tokens)
        wanted, decoding = best_other / factor - prefill, self.mean_request(method) - prefill
        if wanted <= 0.0 or decoding <= 0.0:
            raise InputError(
                f"best_by: {method} cannot be {factor:g} times better by its steps, because its "
                "prefill alone takes longer; use a smaller factor or shorter prompts"
            )
        speed = self.methods[method]
        scaled = replace(speed, steps=_scaled(speed.steps, wanted / decoding))
        return replace(self, methods={**self.methods, method: scaled})


class Changing:
    """The speeds of a world, which its events change."""

    def __init__(self, base: Speeds, truth: Iterable[Truth]) -> None:
        self._base = base
        self._factors: dict[str, list[Truth]] = {}
        self.change(truth)

    def change(self, truth: Iterable[Truth]) -> None:
        """Replace the factors of the methods that `truth` names."""
        told = named(truth, self._base)
        for factor in told:
            self._factors[factor.method] = [one for one in told if one.method == factor.method]
        self.now = self._base.under([one for every in self._factors.values() for one in every])
        self.best = self.now.best()


def named(factors: Iterable[Named], base: Speeds) -> list[Named]:
    """Return factors with the name of the method that is the best by the base for `preferred`."""
    best = {"method": base.best()}
    return [one.model_copy(update=best) if one.method == PREFERRED else one for one in factors]


def on_line(line: Line, at: float) -> float:
    """Return the value on a line through points, which goes on beyond both ends."""
    xs = sorted(line)
    if len(xs) == 1:
        return line[xs[0]]
    i = min(max(1, bisect_left(xs, at)), len(xs) - 1)
    left, right = xs[i - 1], xs[i]
    slope = (line[right] - line[left]) / (right - left)
    return line[right] + slope * (at - right)


def _scaled(line: Line, factor: float) -> Line:
    return {at: seconds * factor for at, seconds in line.items()}
