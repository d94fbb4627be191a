"""Measure held rows by domain."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from training.precision import autocast
from training.tokens import TokenRows

Score = Callable[[Tensor, Tensor], Tensor]
"""ids int64 [t], answer bool [t - 1] (is the token after each position part of an answer?)
-> a value per answer token, [answer.sum()]."""


@torch.no_grad()
def mean_by_domain(
    held: TokenRows, rows_per_domain: int, device: torch.device, score: Score
) -> dict[str, float]:
    """Return the mean score per answer token by domain, over the first rows of each.

    "mean" weighs domains equally.
    """
    result: dict[str, float] = {}
    for d, name in enumerate(held.domains):
        total = count = 0.0
        for i in np.flatnonzero(held.domain == d)[:rows_per_domain]:
            ids, weight = (torch.from_numpy(a[:2048].copy()).to(device) for a in held.row(int(i)))
            answer = (weight == 1.0)[1:]
            with autocast(device):
                values = score(ids.long(), answer)
            total += float(values.sum())
            count += float(answer.sum())
        if count:
            result[name] = total / count
    result["mean"] = float(np.mean(list(result.values())))
    return result
