"""Fuzzy speculative decoding (FSD, arXiv 2502.20704): accept where p and q are close. Lossy."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from workers.torch_engine.build_context import BuildContext
from workers.torch_engine.distribution import draw, warp
from workers.torch_engine.interfaces import Proposal, TargetOutput
from workers.torch_engine.registry import register
from workers.torch_engine.tree import Path


def kl(p: Tensor, q: Tensor) -> Tensor:
    """Return KL(p || q) in nats of rows of log probabilities [n, vocab]; tokens with p = 0 add
    nothing."""
    return (p.exp() * (p - q)).where(p > -torch.inf, 0.0).sum(-1)


def js(p: Tensor, q: Tensor) -> Tensor:
    """Return the Jensen-Shannon divergence in nats, at most ln 2, of rows of log probabilities
    [n, vocab]: half KL(p || m) plus half KL(q || m) with m = (p + q) / 2."""
    m = torch.logaddexp(p, q) - math.log(2.0)
    return 0.5 * (kl(p, m) + kl(q, m))


def tv(p: Tensor, q: Tensor) -> Tensor:
    """Return the total variation, at most 1, of rows of log probabilities [n, vocab]."""
    return 0.5 * (p.exp() - q.exp()).abs().sum(-1)


DIVERGENCES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], float]] = {
    "js": (js, math.log(2.0)),
    "kl_qp": (lambda p, q: kl(q, p), math.inf),
    "kl_pq": (kl, math.inf),
    "tv": (tv, 1.0),
}
"""Each divergence and its greatest possible value."""


@register("verifier", "fuzzy")
class Fuzzy:
    """Accept a position while the divergence of p and q is at most `threshold`, whatever the token.

    Divergences are taken between softmaxes of raw logits; a token that the request forbids (whose
    processed logit is -inf) is never accepted. At the first failure, and as the bonus,
    a token of p itself is emitted, not of the residual: p under the request's temperature, top-k
    and top-p, its argmax at temperature 0.
    """

    needs_distribution = True
    takes_trees = False
    takes_sampled = True

    def __init__(
        self,
        _context: BuildContext,
        *,
        divergence: str = "js",
        threshold: float = 0.4,
    ) -> None:
        if divergence not in DIVERGENCES:
            names = ", ".join(DIVERGENCES)
            raise ValueError(f"verifier 'fuzzy': divergence is one of {names}, not {divergence!r}")
        self._divergence, greatest = DIVERGENCES[divergence]
        if not 0.0 <= threshold <= greatest:
            raise ValueError(
                f"verifier 'fuzzy': {divergence} lies between 0 and {greatest:.3f}, so a threshold "
                f"of {threshold} decides nothing"
            )
        self._threshold = threshold

    def verify(self, proposals: Sequence[Proposal], output: TargetOutput) -> list[Path]:
        """Return one path per proposal."""
        return [self._verify(proposal, output) for proposal in proposals]

    def _verify(self, proposal: Proposal, output: TargetOutput) -> Path:
        sequence, kept = proposal.sequence, 0
        if len(proposal):
            rows = slice(proposal.row, proposal.row + len(proposal))
            distance = self._divergence(*_distributions(proposal, output, rows))
            allowed = output.logits[rows, :][range(len(proposal)), proposal.tokens] > -torch.inf
            near = ((distance <= self._threshold) & allowed).tolist()
            kept = near.index(False) if False in near else len(near)
        last = proposal.row + kept
        if sequence.sampling.temperature == 0.0:
            return Path(tuple(range(kept)), output.best[last])
        p = warp(output.logits[last : last + 1], sequence.sampling)
        return Path(tuple(range(kept)), draw(p, [sequence.rng.random()])[0])


def _distributions(proposal: Proposal, output: TargetOutput, rows: slice) -> tuple[Tensor, Tensor]:
    """Return log p and log q [n, vocab] at each node. A node without logits is forced by a grammar:
    its q is one-hot, and its p is what the grammar allows."""
    p, q = output.raw[rows].clone(), torch.full_like(output.raw[rows], -torch.inf)
    for node, (token, logits) in enumerate(zip(proposal.tokens, proposal.logits, strict=True)):
        if logits is None:
            p[node], q[node, token] = output.logits[rows][node], 0.0
        else:
            q[node] = logits.whole()[0]
    return p.log_softmax(-1), q.log_softmax(-1)
