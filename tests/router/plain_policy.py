"""What `router.policy` decides by, written down as it is defined: without anything kept between
prompts, and with arrays of all methods at once."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from router import evidence, favourites, predict
from router.constraints import Constraints
from router.load import Forecast
from router.prompt import Features
from router.replica_loads import MIXING, ReplicaLoads
from router.trials import GUESS, START_REQUESTS, Choice, Option, Trials, unit_of
from schemas import LoadReport, Objective, Reason, RouterConfig, RoutingTable

Floats = NDArray[np.float64]


def step_seconds(table: RoutingTable, batch: float, context: float) -> Floats:
    """Of every method [m]: bilinear on the grid, linear beyond its largest batch and context."""
    contexts, batches = table.context_grid, table.batch_grid
    column = np.stack(
        [
            [np.interp(context, contexts, line) for line in of_method]
            for of_method in table.step_seconds
        ]
    )
    if context > contexts[-1] and len(contexts) > 1:
        growth = np.diff(table.step_seconds[:, :, -2:])[:, :, 0] / (contexts[-1] - contexts[-2])
        column += np.maximum(0.0, growth) * (context - contexts[-1])
    if batch <= batches[0] or len(batches) == 1:
        found = column[:, 0]
    elif batch >= batches[-1]:
        slope = (column[:, -1] - column[:, -2]) / (batches[-1] - batches[-2])
        found = column[:, -1] + slope * (batch - batches[-1])
    else:
        found = np.asarray([np.interp(batch, batches, line) for line in column])
    full = min(1.0, np.log2(max(1.0, batch)) / 3.0)
    return np.asarray(found * table.live.step_ratio * table.live.batch_ratio**full)


def prefill_seconds(table: RoutingTable, prompt_tokens: float) -> Floats:
    """Of every method [m]."""
    constant, slope = table.prefill_seconds.T
    return np.asarray(table.live.prefill_ratio * (constant + slope * prompt_tokens))


def typical_seconds(table: RoutingTable) -> Floats:
    """[k, m, t] of each cluster's typical prompt, alone on a replica."""
    seconds = np.empty(evidence.acceptance(table).shape)
    prompts = table.provenance["prompt_tokens"]
    for k, prompt in enumerate(prompts):
        output = predict.emitted_output(table, k)
        steps = max(0.0, output - 1.0) / evidence.acceptance(table)[k]
        alone = step_seconds(table, 1.0, prompt + output / 2.0)
        seconds[k] = prefill_seconds(table, prompt)[:, None] + steps * alone[:, None]
    return seconds


def obstacles_of(
    table: RoutingTable,
    loads: ReplicaLoads,
    constraints: Constraints,
    _config: RouterConfig,
) -> dict[str, Reason | None]:
    """Health alone: nothing else stands against a method where this is used."""
    found: dict[str, Reason | None] = {}
    for name in table.methods:
        reports = [r for r in loads.reports if name in r.methods]
        sick = bool(reports) and not any(r.healthy for r in reports)
        found[name] = "failover" if sick or name not in constraints.healthy else None
    return found


def burden(report: LoadReport, method: str) -> float:
    running = sum(report.running_by_method.values())
    others = running - report.running_by_method.get(method, 0)
    return report.outstanding_tokens * (1.0 + MIXING * (others / running if running else 0.0))


class Prospect:
    def __init__(self, table: RoutingTable, features: Features) -> None:
        self._table, self._band, self._features = table, features.band, features
        self._prompt, cluster = features.prompt_tokens, features.cluster
        self._slots = features.prompt_tokens + features.max_tokens
        band, predicted = features.band, features.predicted
        cells = evidence.acceptance(table)[:, :, band]
        accepted = cells[cluster].copy() if cluster >= 0 else cells.mean(axis=0)
        for m, name in enumerate(table.methods):
            if cluster >= 0 and name in predicted:
                accepted[m] *= np.exp(predicted[name] - table.regression_mean[cluster, m])
                accepted[m] = max(1.0, accepted[m])
        self._output = min(float(features.max_tokens), predict.expected_output(table, cluster))
        self._steps = max(0.0, self._output - 1.0) / accepted

    def alone(self) -> dict[str, float]:
        return {n: one.seconds for n, one in self.under(ReplicaLoads(())).items()}

    def usual(self) -> dict[str, float]:
        return Prospect(self._table, replace(self._features, predicted={})).alone()

    def under(self, loads: ReplicaLoads) -> dict[str, Forecast]:
        return {
            name: self._of(m, name, loads.reports) for m, name in enumerate(self._table.methods)
        }

    def _times(self, batch: float) -> Floats:
        return step_seconds(self._table, batch, self._prompt + self._output / 2.0)

    def _of(self, m: int, name: str, loads: Sequence[LoadReport]) -> Forecast:
        prefill, steps = prefill_seconds(self._table, self._prompt)[m], self._steps[m]
        idle = prefill + steps * self._times(1.0)[m]
        hosts = [r for r in loads if r.healthy and name in r.methods]
        roomy = [r for r in hosts if r.waiting == 0 and r.free_slots >= self._slots]
        if not hosts:
            return Forecast(idle, 0.0, 0.0, idle=idle)
        taken = min(roomy or hosts, key=lambda r: burden(r, name))
        running = {
            self._table.methods.index(n): c for n, c in taken.running_by_method.items() if c > 0
        }
        beside = list(running) or [m]
        if roomy:
            batch = 1.0 + float(np.mean([r.running for r in roomy]))
            waiting, line, without = 0.0, 0, max(1.0, batch - 1.0)
        else:
            batch = without = max(1.0, float(taken.running))
            line = taken.waiting
            waiting = (line + 1) * self._turn(running or {m: 1}, batch)
        counts = list(running.values()) or [1]
        before = np.average(self._times(batch)[beside], weights=counts)
        step = ((batch - 1.0) * before + self._times(batch)[m]) / batch
        if running.keys() <= {m}:
            step = self._times(batch)[m]
        longer = max(0.0, step - np.average(self._times(without)[beside], weights=counts))
        own = prefill + steps * step
        delay = (batch - 1.0) * (prefill + steps * longer)
        share = prefill + steps * self._times(batch)[m] / batch
        lone = np.average(self._times(1.0)[beside], weights=counts)
        knock_on = 1.0 + 2.0 * max(0.0, 1.0 - lone / before) if before > 0.0 else 1.0
        return Forecast(waiting + own, waiting, knock_on * (delay + line * share), idle=idle)

    def _turn(self, running: dict[int, int], batch: float) -> float:
        table, here, counts = self._table, list(running), list(running.values())
        prompt = float(np.mean(table.provenance["prompt_tokens"]))
        output = predict.emitted_output(table, -1)
        steps = output / evidence.acceptance(table)[:, :, self._band].mean(axis=0)
        prefill = np.average(prefill_seconds(table, prompt)[here], weights=counts)
        steps_here = step_seconds(table, batch, prompt + output / 2.0)[here]
        step = np.average(steps_here, weights=counts)
        return float(prefill + np.average(steps[here], weights=counts) * step / batch)


def soonest(seconds: Floats, errors: Floats) -> Floats:
    center = np.log(seconds)
    low, high = (center - 6.0 * errors).min(), (center + 6.0 * errors).min()
    done = ndtr((np.linspace(low, high, 257) - center[:, None]) / errors[:, None])
    chances = np.empty(len(center))
    for m in range(len(center)):
        later = np.delete(1.0 - done, m, axis=0).prod(axis=0)
        chances[m] = (np.diff(done[m]) * (later[1:] + later[:-1])).sum() / 2.0
    return np.asarray(chances / chances.sum())


def choose(
    trials: Trials, options: Sequence[Option], objective: Objective, config: RouterConfig
) -> Choice:
    budget, rng = trials.budget, trials.rng
    margin, share = favourites.HYSTERESIS, config.exploration
    seconds, errors, delays = zip(*options, strict=True)
    predicted = np.maximum(np.asarray(seconds), 1e-9)
    unit = unit_of(objective, float(predicted[0]))
    predicted = predicted / unit
    delayed = np.asarray(delays) / unit
    delayed = np.maximum(0.0, delayed - delayed[0])
    spread = np.asarray(errors)
    budget.earn(share * float(predicted[0]))
    guess = spread > GUESS
    guess[0] = False
    if guess.any() and not budget.started:
        budget.start(START_REQUESTS * float(predicted[0]))
    extra = np.maximum(0.0, predicted - predicted[0])
    extra[guess] = np.maximum(extra[guess], predicted[0])
    handicap = np.where(np.arange(len(predicted)) == 0, 1.0, 1.0 + margin)
    at_risk = np.maximum(0.0, predicted * np.exp(spread) + delayed - predicted[0])
    affordable = np.where(guess, budget.units >= 0.0, at_risk <= budget.units)
    chances = np.zeros(len(predicted))
    if affordable[1:].any():
        chances = np.where(affordable, soonest(predicted * handicap + delayed, spread), 0.0)
    chances[0] += 1.0 - chances.sum()
    index = int(np.searchsorted(np.cumsum(chances)[:-1], rng.random(), side="right"))
    budget.pay(float(extra[index] + delayed[index]))
    return Choice(index, float(chances[index]), unit * float(extra[index]))
