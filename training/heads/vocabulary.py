"""Choose the tokens that a head drafts, by how often answers hold them."""

import numpy as np
import torch
from torch import Tensor

from training.heads.packing import frequent_tokens, token_counts
from training.tokens import TokenRows

COVERED, LEAST_WORDS = 0.995, 2048
"""A new head drafts the most frequent tokens, so many that they make up this share of the answers;
and at least so many."""


def covering_words(rows: TokenRows, vocabulary: int) -> Tensor | None:
    """Return the tokens that a new head drafts, int64 [k] ascending, None for all."""
    counts = np.sort(token_counts(rows, vocabulary))[::-1].cumsum()
    count = max(LEAST_WORDS, 1 + int(np.searchsorted(counts, COVERED * counts[-1])))
    if count >= vocabulary:
        return None
    return torch.from_numpy(frequent_tokens(rows, count, vocabulary))
