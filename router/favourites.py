"""Each cluster's preferred method: the method that is predicted to be the fastest there."""

from collections.abc import Collection, Sequence

import numpy as np
from scipy.special import ndtr

from router import evidence, predict
from router.evidence import Floats
from schemas import RoutingTable
from schemas.method import PLAIN_METHODS

MIN_EVIDENCE_ANSWERS = 8.0
"""Answers that two methods need to be compared for a cluster's preferred method, including those
borrowed from other temperature bands: a profile at temperature 0 decides for the other bands until
they have answers of their own."""

HYSTERESIS = 0.05
"""Least advantage of another method, for a new preferred method and under load."""
CONFIDENCE = 0.8
"""Least probability that a new preferred method is better."""


def typical_seconds(table: RoutingTable) -> Floats:
    """Predict the seconds [k, m, t] of each cluster's typical prompt on an idle replica."""
    accepted = evidence.acceptance(table)
    prompts = table.provenance.get("prompt_tokens", [])
    seconds = np.empty(accepted.shape)
    methods = range(len(table.methods))
    for k in range(len(table.assignment)):
        prompt = prompts[k] if k < len(prompts) else predict.TYPICAL_PROMPT_TOKENS
        output = predict.emitted_output(table, k)
        times = predict.StepTimes(table, prompt + output / 2.0)
        alone = np.asarray([times.of(m, 1.0) for m in methods])
        steps = max(0.0, output - 1.0) / accepted[k]
        prefills = np.asarray(predict.prefills(table, prompt))
        seconds[k] = prefills[:, None] + steps * alone[:, None]
    return seconds


def fastest(table: RoutingTable) -> tuple[tuple[str, ...], ...]:
    """Return the method [k][t] with the least predicted seconds for each typical prompt."""
    best = typical_seconds(table).argmin(axis=1)
    return tuple(tuple(table.methods[m] for m in row) for row in best)


def with_favourites(table: RoutingTable, default_method: str | None) -> RoutingTable:
    """Return the table with the fastest method as preferred method of each cluster and temperature
    band.

    default_method: None chooses the method that is fastest over all profiled prompts. Raises
    ValueError for a method that is not in the table.
    """
    cost = typical_seconds(table)
    if table.objective == "speedup":
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
        update={"assignment": fastest(table), "default_method": default_method or overall}
    )


def favourite(
    seconds: Sequence[float] | Floats,
    answers: Sequence[float] | Floats,
    errors: Sequence[float] | Floats,
    current: int,
    admissible: Sequence[int],
) -> int:
    """Return the index of the method that stays or becomes the preferred method.

    seconds: predicted [m]. answers: evidence behind each [m]. errors: standard errors of log
    seconds [m]. current: index of the present preferred method. It changes only to a method that is
    predicted to be faster by more than HYSTERESIS, with a probability of at least
    CONFIDENCE, when both have MIN_EVIDENCE_ANSWERS.
    """
    best = min(admissible, key=lambda m: (seconds[m], m))
    if current not in admissible:
        return best
    solid = [m for m in admissible if answers[m] >= MIN_EVIDENCE_ANSWERS]
    if current not in solid:
        return current
    best = min(solid, key=lambda m: (seconds[m], m))
    if seconds[best] * (1.0 + HYSTERESIS) >= seconds[current]:
        return current
    lead = np.log(seconds[current] / seconds[best]) / np.hypot(errors[current], errors[best])
    return best if ndtr(lead) >= CONFIDENCE else current


def kept(
    favourites: Sequence[Sequence[str]], names: Collection[str], instead: Sequence[Sequence[str]]
) -> tuple[tuple[str, ...], ...]:
    """Return the preferred methods [k][t], with those not among `names` replaced from `instead`."""
    return tuple(
        tuple(name if name in names else other for name, other in zip(row, others, strict=True))
        for row, others in zip(favourites, instead, strict=True)
    )
