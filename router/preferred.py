"""Each cluster's preferred method: the one that is predicted to be the fastest there."""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from router import predict
from router.acceptance import Floats, acceptance
from schemas import TEMPERATURE_BANDS, RoutingTable
from schemas.config import PLAIN_METHODS

HYSTERESIS = 0.03
"""Least advantage of another method, for a new preferred method and under load."""

Assignment = tuple[tuple[str, ...], ...]


def typical_seconds(table: RoutingTable) -> Floats:
    """Predict the seconds [k, m, t] of each cluster's typical prompt on an idle replica."""
    accepted = acceptance(table)[:, :, : len(TEMPERATURE_BANDS)]
    prompts, usual = table.provenance.get("prompt_tokens", []), predict.usual_prompt(table)
    seconds = np.empty(accepted.shape)
    for k in range(len(table.assignment)):
        prompt = prompts[k] if k < len(prompts) else usual
        output = predict.emitted_output(table, k)
        times = predict.StepTimes(table, prompt + output / 2.0)
        alone = np.asarray([times.of(m, 1.0) for m in range(len(table.methods))])
        steps = max(0.0, output - 1.0) / accepted[k]
        prefills = np.asarray(predict.prefills(table, prompt))
        seconds[k] = prefills[:, None] + steps * alone[:, None]
    return seconds


def preferred(table: RoutingTable) -> Assignment:
    """Return the assignment after what was learned.

    A method stays preferred until another one is faster by HYSTERESIS. Failures count with the
    seconds that they cost.
    """
    cost = typical_seconds(table) * (1.0 + table.live.loss)[None, :, None]
    number = {name: m for m, name in enumerate(table.methods)}
    before = np.asarray([[number[name] for name in row] for row in table.assignment])
    best = cost.argmin(axis=1)
    now, least = (
        np.take_along_axis(cost, chosen[:, None], axis=1)[:, 0] for chosen in (before, best)
    )
    chosen = np.where(least * (1.0 + HYSTERESIS) < now, best, before)
    return _named(table, chosen)


def with_preferred(table: RoutingTable, default_method: str | None) -> RoutingTable:
    """Return the table with the fastest method as preferred method of each cluster and temperature
    band.

    default_method: None chooses the method that is fastest over all profiled prompts. Raises
    ValueError for a method that is not in the table.
    """
    cost = typical_seconds(table)
    plain = next((table.methods.index(n) for n in PLAIN_METHODS if n in table.methods), None)
    cost = cost / (cost.mean(axis=1) if plain is None else cost[:, plain])[:, None]
    weights = np.maximum(table.output_count, 1e-9)
    often = table.acceptance_tokens.sum(axis=(0, 1)) + 1e-9
    overall = table.methods[int((weights[:, None] * (cost @ often)).sum(axis=0).argmin())]
    if default_method is not None and default_method not in table.methods:
        raise ValueError(
            f"default_method: {default_method} is not in the table, which has "
            f"{', '.join(table.methods)}"
        )
    # The cost of a cluster without profiled prompts comes from the methods' means.
    return table.model_copy(
        update={
            "assignment": _named(table, cost.argmin(axis=1)),
            "default_method": default_method or overall,
        }
    )


def _named(table: RoutingTable, chosen: NDArray[np.intp]) -> Assignment:
    return tuple(tuple(table.methods[m] for m in row) for row in chosen.tolist())


def kept(
    before: Sequence[Sequence[str]], names: Collection[str], instead: Sequence[Sequence[str]]
) -> Assignment:
    """Return the preferred methods [k][t], with those not among `names` replaced from `instead`."""
    return tuple(
        tuple(name if name in names else other for name, other in zip(row, others, strict=True))
        for row, others in zip(before, instead, strict=True)
    )
