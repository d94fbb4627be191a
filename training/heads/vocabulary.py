"""Choose the tokens that a head drafts, by how often answers hold them."""

import numpy as np
import torch
from torch import Tensor

from training.heads.packing import frequent_tokens, token_counts
from training.heads.stored import StoredHead
from training.heads.teacher import Teacher
from training.tokens import TokenRows

COVERED, LEAST_WORDS = 0.995, 2048
"""A new head drafts the most frequent tokens, so many that they make up this share of the answers;
and at least so many."""
MOST_REPLACED = 0.05
"""Share of a vocabulary that one round replaces at most: the answers of a round do not show what
other traffic needs."""
FREQUENT = 2e-4
"""Share of the answers' tokens that a token which comes in makes up at least."""


def covering_words(rows: TokenRows, vocabulary: int) -> Tensor | None:
    """Return the tokens that a new head drafts, int64 [k] ascending, None for all."""
    counts = np.sort(token_counts(rows, vocabulary))[::-1].cumsum()
    count = max(LEAST_WORDS, 1 + int(np.searchsorted(counts, COVERED * counts[-1])))
    if count >= vocabulary:
        return None
    return torch.from_numpy(frequent_tokens(rows, count, vocabulary))


def replace_rare_words(stored: StoredHead, rows: TokenRows, teacher: Teacher) -> None:
    """Let an EAGLE-3 head draft frequent tokens of the answers in the place of its rarest ones.

    The rows of its LM head for them begin as the target's, as all rows of a new head do. Of words
    that are as rare, those with the highest ids leave: tokenizers learn rare tokens last.
    """
    words = stored.vocabulary
    if words is None or stored.kind != "eagle3":
        return
    counts = token_counts(rows, len(teacher.lm_head))
    ids, least = words.numpy(), FREQUENT * counts.sum()
    inside = counts[ids]
    counts[ids] = 0.0
    most = int(MOST_REPLACED * len(words))
    leaving = np.lexsort((-ids, inside))[:most]
    coming = np.argsort(-counts, kind="stable")[:most]
    wanted = (counts[coming] >= least) & (counts[coming] > inside[leaving])
    leaving, coming = leaving[wanted], coming[wanted]
    words, head = words.clone(), stored.weights["lm_head.weight"].clone()
    words[leaving] = torch.from_numpy(coming)
    head[leaving] = teacher.lm_head[coming].to(head)
    stored.vocabulary, order = words.sort()
    stored.weights["lm_head.weight"] = head[order]
