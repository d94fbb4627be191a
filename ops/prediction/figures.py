"""What choosing by each form is worth, on answers that none of them has learned from."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ops.prediction.answers import Answers, Learned
from ops.prediction.forms import FORMS, Form
from router import predict
from router.evaluate import over_best_single
from schemas import RoutingTable

Floats = NDArray[np.float64]


def compared(
    learned: Learned,
    asked: Answers,
    max_tokens: int,
    seed: int,
    forms: Mapping[str, Form] = FORMS,
) -> dict[str, Any]:
    """By form: the root of the mean squared error of log acceptance over all methods, and by
    temperature the speedup of the methods it chooses over the best single one's, with a 95%
    interval."""
    weights = asked.seconds if learned.table.objective == "seconds" else np.ones(len(asked.seconds))
    figures = {}
    for name, form in forms.items():
        foretold, chosen = choose(learned, form, asked, max_tokens)
        routed = asked.speedups[np.arange(len(chosen)), chosen]
        error = foretold - asked.log_acceptance
        figures[name] = {
            "log_acceptance_rmse": float(np.sqrt((error**2).mean())),
            "by_temperature": {
                f"{t:g}": over_best_single(asked.speedups[at], routed[at], weights[at], seed)
                for t in np.unique(asked.temperatures)
                for at in [asked.temperatures == t]
            },
        }
    return figures


def choose(
    learned: Learned, form: Form, asked: Answers, max_tokens: int
) -> tuple[Floats, NDArray[np.intp]]:
    """The log acceptance [n, m] that a form foretells of the asked answers, and the method [n] that
    is the soonest by it."""
    foretold = form(learned, asked)
    return foretold, _seconds(learned.table, foretold, asked, max_tokens).argmin(axis=1)


def _seconds(
    table: RoutingTable, log_acceptance: Floats, asked: Answers, max_tokens: int
) -> Floats:
    """Predicted seconds [n, m], of answers as long as their cluster's are expected to be."""
    outputs = [
        min(float(max_tokens), predict.expected_output(table, label)) for label in asked.labels
    ]
    return np.asarray(
        [
            [
                predict.predicted_seconds(table, float(np.exp(accepted)), m, prompt, output)
                for m, accepted in enumerate(row)
            ]
            for row, prompt, output in zip(
                np.maximum(0.0, log_acceptance), asked.prompt_tokens, outputs, strict=True
            )
        ]
    )
