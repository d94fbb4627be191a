"""How fast a world's methods are, and the routing table that its router begins with."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ops.common.boundary import InputError
from ops.simulate.world import (
    ALL,
    PLAIN,
    PREFERRED,
    Acceptance,
    Base,
    Believed,
    Clients,
    Clusters,
    Factor,
    Truth,
    World,
)
from router import acceptance, predict
from router.fit.unfitted import unfitted_table
from router.preferred import with_preferred
from schemas import EncoderInfo, MeasuredUnder, MethodSpec, RoutingTable, temperature_band

Floats = NDArray[np.float64]
Line = Mapping[int, float]
AnyFactor = TypeVar("AnyFactor", bound=Factor)

HIGH = 0.6
"""Temperature from which on acceptance is the base's `high`. Below, it is linear."""


@dataclass
class Speed:
    """The speed of one method in k clusters.

    acceptance [k]: tokens per step. steps: seconds of a step by requests at once. prefills: seconds
    of a prompt by its tokens. step, prefill: factors on these. fails: share of responses that fail
    half way; 1 if they hang. only_greedy: there are no counts above temperature 0.
    """

    acceptance: Floats
    steps: Line
    prefills: Line
    step: float = 1.0
    prefill: float = 1.0
    fails: float = 0.0
    hangs: bool = False
    only_greedy: bool = False


class Speeds:
    """The base's methods under factors, for one kind of client.

    Raises InputError if a `best_by` cannot be reached. It compares with what all other factors make
    of the methods.
    """

    def __init__(self, base: Base, clients: Clients, factors: Sequence[Factor] = ()) -> None:
        share = min(1.0, clients.temperature / HIGH)
        self.methods: dict[str, Speed] = {}
        for name in base.methods:
            greedy, high = base.acceptance.greedy[name], base.acceptance.high[name]
            accepted = (1.0 - share) * np.asarray(greedy) + share * np.asarray(high)
            steps, prefills = base.step_seconds[name], base.prefill_seconds[name]
            self.methods[name] = Speed(accepted, steps, prefills)
        self._weights = np.asarray(base.clusters.weights)
        self._tokens = np.minimum(base.output_tokens, clients.max_tokens)
        self._prompt_tokens = clients.prompt_tokens
        for factor in factors:
            self._change(factor)
        for factor in factors:
            if isinstance(factor, Truth) and factor.best_by is not None:
                self._make_best(factor.method, factor.best_by)

    def step(self, counts: Mapping[str, int]) -> float:
        """Return the seconds of a step with these sequences by method: the mean of the methods'."""
        batch = sum(counts.values())
        speeds = [(count, self.methods[name]) for name, count in counts.items()]
        return sum(count * one.step * on_line(one.steps, batch) for count, one in speeds) / batch

    def prefill(self, method: str, tokens: float) -> float:
        """Return the seconds of reading a prompt."""
        speed = self.methods[method]
        return speed.prefill * on_line(speed.prefills, tokens)

    def seconds(self, method: str, cluster: int, running: Mapping[str, int]) -> tuple[float, float]:
        """Return the expected seconds of reading a cluster's prompt and of decoding its response.

        running: sequences by method that run on the same replica.
        """
        counts = {**running, method: running.get(method, 0) + 1}
        steps = max(0.0, self._tokens[cluster] - 1.0) / self.methods[method].acceptance[cluster]
        return self.prefill(method, self._prompt_tokens), float(steps) * self.step(counts)

    def mean_request(self, method: str) -> float:
        """Return the expected seconds of the mean request alone."""
        each = [sum(self.seconds(method, k, {})) for k in range(len(self._weights))]
        return float(np.average(each, weights=self._weights))

    def worth(self, method: str, seconds: float) -> float:
        """Return the seconds until a complete response if failed ones are asked again."""
        fails = self.methods[method].fails
        return seconds * (1.0 - fails / 2.0) / (1.0 - fails) if fails < 1.0 else float("inf")

    @cached_property
    def best(self) -> str:
        """The method that is the best on the mean request, its failures included."""
        return min(self.methods, key=lambda name: self.worth(name, self.mean_request(name)))

    def _change(self, factor: Factor) -> None:
        """Apply a factor, but for its `best_by`."""
        where = slice(None) if factor.clusters is None else list(factor.clusters)
        for name in self.methods if factor.method == ALL else (factor.method,):
            speed = self.methods[name]
            if name != PLAIN:
                accepted = speed.acceptance[where] * factor.acceptance
                speed.acceptance[where] = np.maximum(1.0, accepted)
            speed.step *= factor.step
            speed.prefill *= factor.prefill
            if isinstance(factor, Truth):
                speed.fails = max(speed.fails, 1.0 if factor.hangs else factor.fails)
                speed.hangs |= factor.hangs
            if isinstance(factor, Believed):
                speed.only_greedy |= factor.only_greedy

    def _make_best(self, method: str, factor: float) -> None:
        best_other = min(self.mean_request(name) for name in self.methods if name != method)
        prefill = self.prefill(method, self._prompt_tokens)
        wanted, decoding = best_other / factor - prefill, self.mean_request(method) - prefill
        if wanted <= 0.0 or decoding <= 0.0:
            raise InputError(
                f"best_by: {method} cannot be {factor:g} times better by its steps, because its "
                "prefill alone takes longer; use a smaller factor or shorter prompts"
            )
        self.methods[method].step *= wanted / decoding


def named(factors: Sequence[AnyFactor], base: Base, clients: Clients) -> list[AnyFactor]:
    """Return the factors with the best method by the base in the place of PREFERRED."""
    update = {"method": Speeds(base, clients).best}
    return [f.model_copy(update=update) if f.method == PREFERRED else f for f in factors]


def true_speeds(world: World, base: Base, number: int) -> Speeds:
    """Return what is so at the request with a number. Later events replace earlier factors.

    Raises InputError if it is impossible.
    """
    events = sorted(world.events, key=lambda event: event.at)
    factors: dict[str, list[Truth]] = {}
    for truth in (world.truth, *(event.truth for event in events if event.at <= number)):
        own = named(truth, base, world.clients)
        factors |= {f.method: [one for one in own if one.method == f.method] for f in own}
    speeds = Speeds(base, world.clients, [one for every in factors.values() for one in every])
    if all(speed.fails == 1.0 for speed in speeds.methods.values()):
        raise InputError("truth: no method ever answers; leave one that does")
    return speeds


def on_line(line: Line, at: float) -> float:
    """Return the value on a line through points, which goes on beyond both ends."""
    xs = sorted(line)
    i = min(max(1, bisect_left(xs, at)), len(xs) - 1)
    left, right = xs[i - 1], xs[i]
    # A single point is its own left: the line is level.
    slope = (line[right] - line[left]) / ((right - left) or 1)
    return line[right] + slope * (at - right)


PROMPTS = 240
"""Profiled prompts that a table's evidence stands for; at least two are in each cluster."""
TEMPERATURES = (0.0, 0.3, 0.8)
"""Profiled temperatures, one in each of the router's bands. The clients' replaces that of its
band."""
CONTEXTS = (64, 2048)
LENGTHS = (80, 160)
"""Tokens of the profiled prompts."""


def believed_table(world: World, base: Base) -> RoutingTable:
    """Return the table of a profile without noise that says what the world's router believes.

    Each cluster has its own vector, which all its prompts have. A world without a table has one
    cluster, and methods about which nothing is known.
    """
    k, m = len(base.clusters.weights), len(base.methods)
    specs = [
        MethodSpec(name=m, drafter="none" if m == PLAIN else m, lossless=True, source="a world")
        for m in base.methods
    ]
    under = MeasuredUnder(machine="world", device="cpu", dtype="float32", threads=1, bundle="world")
    encoder = EncoderInfo(name="world", dimension=k, sha256="world")
    if world.believed is None:
        return unfitted_table(specs, encoder, under)
    table = unfitted_table(specs, encoder, under, clusters=k)
    weights = np.asarray(base.clusters.weights)
    prompts = np.maximum(2.0, np.round(PROMPTS * weights / weights.sum()))
    tokens, steps = np.zeros((2, k, m, len(TEMPERATURES)))
    temperatures = list(TEMPERATURES)
    temperatures[temperature_band(world.clients.temperature)] = world.clients.temperature
    believed = named(world.believed, base, world.clients)
    for band, temperature in enumerate(temperatures):
        clients = world.clients.model_copy(update={"temperature": temperature})
        speeds = Speeds(base, clients, believed)
        for i, speed in enumerate(speeds.methods.values()):
            if temperature == 0.0 or not speed.only_greedy:
                tokens[:, i, band] = acceptance.ANSWER_TOKENS * prompts
                steps[:, i, band] = tokens[:, i, band] / speed.acceptance
    batches = sorted({1}.union(*base.step_seconds.values()))
    seconds = [[[speeds.step({name: b})] * len(CONTEXTS) for b in batches] for name in base.methods]
    prefills = [
        np.polyfit(LENGTHS, [speeds.prefill(name, n) for n in LENGTHS], 1)[::-1]
        for name in base.methods
    ]
    profiled = {
        "centroids": np.eye(k),
        "acceptance_tokens": tokens,
        "acceptance_steps": steps,
        "batch_grid": tuple(batches),
        "context_grid": CONTEXTS,
        "step_seconds": np.asarray(seconds),
        "step_count": np.full_like(seconds, 200.0),
        "prefill_seconds": np.maximum(0.0, prefills),
        "output_tokens": np.asarray(base.output_tokens),
        "output_count": prompts * len(TEMPERATURES),
        "provenance": {"prompt_tokens": [float(np.mean(LENGTHS))] * k},
    }
    return with_preferred(RoutingTable.model_validate(dict(table) | profiled), None)


def base_of(table: RoutingTable) -> Base:
    """Return the numbers of a routing table as the base of worlds."""
    accepted = acceptance.acceptance(table)
    methods = list(enumerate(table.methods))
    greedy, high = (
        {name: tuple(accepted[:, m, band].tolist()) for m, name in methods} for band in (0, 2)
    )
    times = predict.StepTimes(table, CONTEXTS[0])
    return Base(
        methods=table.methods,
        clusters=Clusters(weights=tuple(np.maximum(table.output_count, 1e-3).tolist())),
        acceptance=Acceptance(greedy=greedy, high=high),
        step_seconds={name: {b: times.of(m, b) for b in table.batch_grid} for m, name in methods},
        prefill_seconds={
            name: {n: predict.measured_prefill(table, m, n) for n in LENGTHS} for m, name in methods
        },
        output_tokens=tuple(table.output_tokens.tolist()),
    )
