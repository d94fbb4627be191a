"""Definitions of tokens per second, speedups and their summaries.

Tokens per second are output tokens over the seconds from the request to its last token, prefill
included. A speedup is paired: the same prompt under the same conditions, over a plain method.
"""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from schemas.config import PLAIN_METHODS

BASELINE, VLLM_BASELINE = PLAIN_METHODS
RESAMPLES = 4000
MIN_TOKENS = 8
"""Least output tokens of a response that counts for speed; shorter ones count for correctness."""


def baseline_of(methods: Collection[str]) -> str:
    """Return the method that speedups are over: `naive`, or without it `vllm_naive`.

    Raises ValueError if both are absent.
    """
    found = next((name for name in PLAIN_METHODS if name in methods), None)
    if found is None:
        raise ValueError(
            f"methods: {', '.join(methods)} have no plain one to be compared with: "
            f"add {' or '.join(PLAIN_METHODS)}"
        )
    return found


def harmonic_mean(values: ArrayLike, weights: ArrayLike = 1.0) -> float:
    """Return the weighted harmonic mean of values [n] above 0.

    It is the right mean for a fixed amount of work per prompt.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0 or not (array > 0.0).all():
        raise ValueError("a harmonic mean needs at least one value, all above 0")
    counted = np.broadcast_to(np.asarray(weights, dtype=np.float64), array.shape)
    return float(counted.sum() / (counted / array).sum())


def paired_bootstrap_ci(
    values: Sequence[float] | NDArray[np.float64],
    baseline: Sequence[float] | NDArray[np.float64],
    seed: int,
) -> tuple[float, float]:
    """Return the 95% percentile interval of harmonic_mean(values) / harmonic_mean(baseline).

    values, baseline: [n] each. Prompts are drawn with replacement, each with both of its values.
    """
    slow = 1.0 / np.asarray(values, dtype=np.float64)
    slow_baseline = 1.0 / np.asarray(baseline, dtype=np.float64)
    if slow.shape != slow_baseline.shape or slow.ndim != 1 or slow.size == 0:
        raise ValueError(f"paired values have shapes {slow.shape} and {slow_baseline.shape}")
    rng = np.random.default_rng(seed)
    ratios = np.empty(RESAMPLES)
    for i in range(RESAMPLES):
        drawn = rng.integers(0, slow.size, slow.size)
        ratios[i] = slow_baseline[drawn].sum() / slow[drawn].sum()
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(low), float(high)
