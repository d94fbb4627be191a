"""What a table's regression predicts for a single prompt, beyond its cluster's cell.

The regression is a linear model of log tokens per decode step, by method, on the prompt's vector
and on features of its text. Only the distance from the mean of the prompt's cluster counts, the
prompt's *deviation*: the cell keeps and learns the cluster's acceptance at deviation 0. The
uncertainty of a prediction is the cell's; the regression's own error is not modelled, because it
belongs to the prompt and no other response shows it.
"""

import math
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from schemas import RoutingTable, condition_of, temperature_band

Floats = NDArray[np.float64]

Predicted = Mapping[str, float]
"""Log acceptance by method, as the regression predicts it for one prompt; empty without one. It
does not depend on clusters, so it stays valid after a refit."""

NO_PREDICTION: Predicted = {}


@dataclass(frozen=True)
class Features:
    """What is known about a prompt when it is routed.

    predicted: by the table's regression, where it has one. cluster: -1 when the prompt could not
    be embedded. held [n]: how many of its first tokens each replica's cache holds; None: unknown.
    """

    prompt_tokens: int
    max_tokens: int
    temperature: float = 0.0
    predicted: Predicted = field(default_factory=dict, hash=False)
    cluster: int = -1
    held: Floats | None = field(default=None, compare=False)
    grammar: bool = False

    @property
    def band(self) -> int:
        """The index of the temperature band."""
        return temperature_band(self.temperature)

    @property
    def condition(self) -> int:
        """The index of the condition under which methods accept."""
        return condition_of(self.temperature, grammar=self.grammar)


READ_CHARACTERS = 4096
"""Characters of a text that are read."""

MOST_TOKENS = 512
"""Longer prompts count as this long: they are mostly conversations, which profiles do not have."""

OPENINGS = ("translate", "write", "fix", "rewrite", "summar", "explain", "what", "how", "why")
"""Words that name the task."""

NAMES = (
    *("repeated", "distinct_words", "code", "braces", "digits", "lines", "question"),
    *OPENINGS,
    "log_tokens",
)
"""Names of the features in the order of `features_of`; a table fitted on others is refused."""

_CODE = re.compile(r"```|\bdef |\bimport |;\n")


def features_of(text: str, prompt_tokens: float) -> list[float]:
    """Return the features of a prompt's text, in the order of NAMES.

    They measure repetition, code, JSON, digits, lines, questions, how the text begins, and the
    logarithm of its tokens.
    """
    text = text[:READ_CHARACTERS]
    words = text.split()
    trigrams = [*zip(pairwise(words), words[2:], strict=False)]
    lower = text.lower()
    return [
        1.0 - len(set(trigrams)) / len(trigrams) if trigrams else 0.0,
        len(set(words)) / max(1, len(words)),
        float(bool(_CODE.search(text))),
        text.count("{") / max(1, len(text)),
        sum(map(text.count, string.digits)) / max(1, len(text)),
        text.count("\n") / max(1, len(words)),
        float(text.rstrip().endswith("?")),
        *(float(word in lower) for word in OPENINGS),
        math.log(min(MOST_TOKENS, max(1.0, prompt_tokens))),
    ]


def inputs_of(
    vectors: NDArray[np.float32], texts: Sequence[str], prompt_tokens: Sequence[float]
) -> Floats:
    """Return the regression's inputs [n, d + f] for prompts with the vectors [n, d]."""
    pairs = zip(texts, prompt_tokens, strict=True)
    return np.column_stack([vectors, [features_of(text, tokens) for text, tokens in pairs]])


def predictions(
    table: RoutingTable,
    vectors: NDArray[np.float32],
    texts: Sequence[str],
    prompt_tokens: Sequence[float],
) -> list[dict[str, float]]:
    """Predict log acceptance by method, up to a constant, for n prompts with the vectors [n, d].

    Predictions are limited to the range of those for the prompts in the fit. Every one is empty
    when the table has no regression.
    """
    if not table.features:
        return [{} for _ in texts]
    low, high = table.regression_range.T
    inputs = inputs_of(vectors, texts, prompt_tokens)
    rows = np.clip(inputs @ table.regression.T, low, high).tolist()
    return [dict(zip(table.methods, row, strict=True)) for row in rows]


def deviations(table: RoutingTable, cluster: int, predicted: Predicted) -> dict[str, float]:
    """Return by method how far a prompt's log acceptance is predicted to lie from its cluster's.

    It is empty without a cluster (-1) or a prediction.
    """
    if cluster < 0:
        return {}
    mean = dict(zip(table.methods, table.regression_mean[cluster].tolist(), strict=True))
    return {name: value - mean[name] for name, value in predicted.items() if name in mean}
