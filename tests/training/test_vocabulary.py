"""Which tokens a head drafts."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from training.heads.vocabulary import replace_rare_words
from training.tokens import TokenRows, mixed


def rows_of(tokens: list[int], length: int = 100) -> TokenRows:
    count = len(tokens) // length
    return TokenRows(
        np.array(tokens, dtype=np.uint16),
        np.ones(len(tokens), dtype=np.float32),
        length * np.arange(count + 1),
        np.ones(count, dtype=np.float32),
        np.zeros(count, dtype=np.int16),
        ("any",),
    )


def test_replayed_answers_that_a_pass_seldom_draws_hide_no_frequent_token() -> None:
    """Token 50 makes up 0.07% of a pass, and 0.001% of all rows."""
    served, replayed = rows_of([50, *999 * [1]]), rows_of(100_000 * [1])
    stored: Any = SimpleNamespace(
        kind="eagle3",
        vocabulary=torch.arange(40),
        weights={"lm_head.weight": torch.zeros(40, 2)},
    )
    teacher: Any = SimpleNamespace(lm_head=torch.ones(60, 2))
    replace_rare_words(stored, mixed(served, replayed, 0.3), teacher)
    assert stored.vocabulary.tolist() == [*range(39), 50]
    assert stored.weights["lm_head.weight"].sum(1).tolist() == [*39 * [0.0], 2.0]
