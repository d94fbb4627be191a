"""What is foretold of a single prompt's acceptance, beyond what its cluster's cell says.

A table's regression is a linear model of log tokens per decode step, by method, on the prompt's
vector and features (`router.features`). Of what it says only the distance from the mean of the
prompt's cluster counts, the prompt's *deviation*: the cell goes on saying, and learning, what the
cluster's acceptance is at deviation 0. How sure the cell is of that is all the uncertainty that is
reckoned with: what a deviation may be off by is the prompt's own, and no other answer tells it.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from router.features import features_of
from schemas import RoutingTable

Floats = NDArray[np.float64]

Foretold = Mapping[str, float]
"""By method, the log acceptance that the regression says; empty where nothing is foretold. It does
not depend on clusters, so it outlives them."""

NOTHING: Foretold = {}


def inputs_of(
    vectors: NDArray[np.float32], texts: Sequence[str], prompt_tokens: Sequence[float]
) -> Floats:
    """Inputs [n, d + f] of the regression, for prompts with the vectors [n, d]."""
    pairs = zip(texts, prompt_tokens, strict=True)
    return np.column_stack([vectors, [features_of(text, tokens) for text, tokens in pairs]])


def foretold(table: RoutingTable, inputs: Floats) -> Floats:
    """Log acceptance [n, m] of prompts with the inputs [n, d + f], but for a constant; no farther
    out than what was foretold of any prompt learned from."""
    low, high = table.regression_range.T
    return np.asarray(np.clip(inputs @ table.regression.T, low, high))


def foretold_of(
    table: RoutingTable,
    vectors: NDArray[np.float32],
    texts: Sequence[str],
    prompt_tokens: Sequence[float],
) -> list[dict[str, float]]:
    """The same of each of n prompts with the vectors [n, d], by method; of a table without a
    regression nothing."""
    if not table.features:
        return [{} for _ in texts]
    return by_method(table, inputs_of(vectors, texts, prompt_tokens))


def by_method(table: RoutingTable, inputs: Floats) -> list[dict[str, float]]:
    """The same of inputs [n, d + f]."""
    said = foretold(table, inputs).tolist()
    return [dict(zip(table.methods, row, strict=True)) for row in said]


def deviations(table: RoutingTable, cluster: int, said: Foretold) -> Floats:
    """Log acceptance [m] of a prompt over its cluster's; 0 without a cluster (-1), and for a method
    of which nothing was foretold."""
    found = np.zeros(len(table.methods))
    if cluster < 0 or not said:
        return found
    mean = table.regression_mean[cluster]
    for m, name in enumerate(table.methods):
        if name in said:
            found[m] = said[name] - mean[m]
    return found


def explained(table: RoutingTable, cluster: int, said: Foretold) -> dict[str, float]:
    """The same by method, where anything was foretold."""
    if cluster < 0 or not said:
        return {}
    return dict(zip(table.methods, deviations(table, cluster, said).tolist(), strict=True))


def deviation(table: RoutingTable, cluster: int, method: int, said: float | None) -> float:
    """The same of one method, by its index; `said`: what was foretold, if anything."""
    if said is None:
        return 0.0
    return said - float(table.regression_mean[cluster, method])
