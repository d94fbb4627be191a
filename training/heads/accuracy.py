"""Measure how well a head drafts held text, by drafted position and by domain."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from training.heads.data import batch_tensors
from training.heads.head import Head
from training.heads.loss import hits
from training.heads.packing import PackedRows, first_rows
from training.heads.teacher import Teacher
from training.precision import arithmetic, autocast
from training.tokens import TokenRows

BEST = 5
"""Accuracies are measured for the head's first 1 .. BEST tokens."""
ROWS_PER_DOMAIN = 24


@dataclass(frozen=True)
class HeadFigures:
    """A head's figures on held rows, against the target's best tokens along the text.

    loss: cross-entropy in nats per answer token by domain, over all positions. accuracy:
    [positions][BEST], the share of the target's best tokens among the head's first k tokens; later
    positions are drafted from the head's own outputs. acceptance: by domain the share of first
    positions whose best tokens agree. chain: by domain the accepted tokens of a greedy chain.
    """

    loss: dict[str, float]
    accuracy: list[list[float]]
    acceptance: dict[str, float]
    chain: dict[str, float]


class HeldRows:
    """The first held rows of each domain with the target's states, computed once."""

    def __init__(
        self,
        head: Head,
        teacher: Teacher,
        held: TokenRows,
        positions: int,
        length: int,
        tokens: int,
    ) -> None:
        self.head, self.lm_head = head, teacher.lm_head
        self.device = teacher.device
        self.domains: dict[str, list[tuple[Tensor, ...]]] = {}
        for domain in held.domains:
            rows = first_rows(held, domain, ROWS_PER_DOMAIN)
            if rows is None:
                continue
            packed = PackedRows(rows, length, positions)
            count = max(1, tokens // length)
            numbers = np.arange(-(-len(packed) // count) * count) % len(packed)
            self.domains[domain] = []
            for start in range(0, len(packed), count):
                batch = packed.batch(numbers[start : start + count])
                # Bins that fill up the last batch are not counted twice.
                fresh = np.arange(start, start + count) < len(packed)
                batch.weights[~fresh[batch.slots // length]] = 0.0
                inputs, documents = (
                    torch.from_numpy(a).to(self.device) for a in (batch.inputs, batch.documents)
                )
                states = teacher.states(inputs, documents, head.captures)
                states = states.to(arithmetic(self.device))
                self.domains[domain].append(batch_tensors(batch, states, self.device))

    @torch.no_grad()
    def measure(self) -> HeadFigures:
        """Return the head's present figures."""
        loss, acceptance, chain = {}, {}, {}
        accuracy: list[Tensor] = []
        for domain, batches in self.domains.items():
            parts = zip(*map(self._one, batches), strict=True)
            ranks, entropies, weights = (torch.cat(part) for part in parts)
            total = weights.sum(0).clamp_min(1.0)
            of_rank = [((ranks < k) * weights).sum(0) / total for k in range(1, BEST + 1)]
            accuracy.append(torch.stack(of_rank, 1))
            loss[domain] = float(((entropies * weights).sum(0) / total).mean())
            acceptance[domain] = float(of_rank[0][0])
            accepted = ((ranks == 0) * weights).cumprod(1).sum(1)
            chain[domain] = float((accepted * weights[:, 0]).sum() / total[0])
        for figures in (loss, acceptance, chain):
            figures["mean"] = float(np.mean(list(figures.values())))
        return HeadFigures(loss, torch.stack(accuracy).mean(0).tolist(), acceptance, chain)

    def _one(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
        with autocast(self.device):
            ranks, entropies = hits(self.head, self.lm_head, tensors, BEST)
        return ranks, entropies, tensors[-1]
