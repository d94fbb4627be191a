"""From logits to the distribution a request decodes with, and draws from it."""

import torch
from torch import Tensor

from schemas import SamplingParams


def warp(logits: Tensor, sampling: SamplingParams) -> Tensor:
    """Probabilities [n, vocab] float32 of logits [n, vocab] under temperature, top-k, top-p.

    Order and ties as Hugging Face's logits processors: temperature, then top-k (ties with the
    k-th logit stay), then top-p (the smallest set whose mass reaches top_p, at least one token).
    Temperature must be above 0; at 0 callers take the argmax instead.
    """
    scores = logits.float() / sampling.temperature
    if 0 < sampling.top_k < scores.shape[-1]:
        kth = scores.topk(sampling.top_k, dim=-1).values[:, -1:]
        scores = scores.masked_fill(scores < kth, -torch.inf)
    if sampling.top_p < 1.0:
        ascending, order = scores.sort(dim=-1)
        drop = ascending.softmax(-1).cumsum(-1) <= 1.0 - sampling.top_p
        drop[:, -1] = False
        scores = scores.masked_fill(drop.scatter(-1, order, drop), -torch.inf)
    return scores.softmax(-1)


def draw(weights: Tensor, rng: torch.Generator) -> int:
    """One index drawn in proportion to weights [vocab] (not necessarily normalised)."""
    return int(torch.multinomial(weights, 1, generator=rng).item())


def draw_residual(weights: Tensor, fallback: Tensor, rng: torch.Generator) -> int:
    """Draw from what a rejection left; from `fallback` where rounding has left no mass at all."""
    return draw(weights if float(weights.sum()) > 0.0 else fallback, rng)


def uniforms(n: int, rng: torch.Generator) -> list[float]:
    """n independent draws from [0, 1)."""
    return torch.rand(n, generator=rng, device=rng.device).tolist()


def make_rng(seed: int | None, device: torch.device) -> torch.Generator:
    """A request's own generator; None takes a fresh seed."""
    rng = torch.Generator(device=device)
    if seed is None:
        rng.seed()
    else:
        # torch takes 64 bits; any integer a client sends is a valid seed
        rng.manual_seed(seed & 0x7FFF_FFFF_FFFF_FFFF)
    return rng
