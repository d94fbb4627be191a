"""The share of the bounds that decoding reached."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ops.bench.stats import BY_PROMPT
from ops.harness.boundary import InputError
from ops.tables.bounds_figures import COMBINED, PROMPT, SCHEDULE, Answer, Floats, domain_weights
from router.fit.speedup import BASELINE, harmonic_mean, paired_bootstrap_ci, speedup
from schemas.json_files import read_json

BOUNDS = (PROMPT, COMBINED, SCHEDULE)
DOMAIN_RESAMPLES = 1000
"""Bootstrap resamples per domain."""


def reached(
    decoded: Path, answers: Sequence[Answer], found: Mapping[str, Floats], ids: set[str], seed: int
) -> dict[str, Any]:
    """Compare the methods of a `bench decode` of the same prompts with the bounds.

    found: the bounds' speedups of each answer [n]. Returns, by method, the speedup after the first
    token and its share of each bound, with paired intervals: over all answers that have a speedup,
    and by domain. Raises InputError for other prompts, and for a file without speedups by prompt.
    """
    measured = _methods(decoded, ids)
    domains = np.asarray([answer.domain for answer in answers])
    weights = domain_weights(answers)
    figures = {}
    for name, by_prompt in measured.items():
        over = np.asarray([by_prompt.get(answer.prompt_id, np.nan) for answer in answers])
        known = ~np.isnan(over)
        if not known.any():
            continue
        by_domain = {
            str(domain): _shares(over, found, weights, inside, seed, DOMAIN_RESAMPLES)
            for domain in np.unique(domains)
            if (inside := known & (domains == domain)).any()
        }
        figures[name] = {**_shares(over, found, weights, known, seed), "by_domain": by_domain}
    return figures


def _methods(decoded: Path, ids: set[str]) -> dict[str, dict[str, float]]:
    """Return the measured speedups by method and prompt."""
    try:
        figures = read_json(decoded)
        methods = {name: own.get(BY_PROMPT) for name, own in figures["methods"].items()}
        known = set(figures["settings"]["prompts"]["ids"])
    except (AttributeError, KeyError, TypeError) as error:
        raise InputError(
            f"--decoded: {decoded} was not written by `bench decode --json`"
        ) from error
    if known != ids:
        raise InputError(f"--decoded: {decoded} has other prompts; decode those of --ids")
    if BASELINE not in methods:
        raise InputError(f"--decoded: {decoded} has no {BASELINE} to be compared with")
    if old := [name for name, speedups in methods.items() if speedups is None]:
        raise InputError(
            f"--decoded: {decoded}: methods.{old[0]}.{BY_PROMPT} is missing: an earlier "
            "`bench decode` wrote it; decode again"
        )
    return methods


def _shares(
    over: Floats,
    found: Mapping[str, Floats],
    weights: Floats,
    inside: "np.ndarray[Any, np.dtype[np.bool_]]",
    seed: int,
    resamples: int = 4000,
) -> dict[str, Any]:
    own, each = over[inside], weights[inside]
    mean = harmonic_mean(own, each)
    bounds = {name: found[name][inside] for name in BOUNDS}
    beside = {"speedup": np.ones_like(own), **bounds}
    return {
        "answers": int(inside.sum()),
        "speedup": mean,
        **{name: speedup(harmonic_mean(best, each), mean) for name, best in bounds.items()},
        "ci95": {
            name: list(paired_bootstrap_ci(own, other, seed, each, resamples))
            for name, other in beside.items()
        },
    }
