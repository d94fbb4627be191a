"""Train a draft model on the corpus, or distil it on text that the target wrote."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from training.held import mean_by_domain
from training.model import Llama
from training.target import held_loss, next_token_loss
from training.tokens import TokenRows, batches
from training.trainer import Hyper, Loss, Run, Trainer

# A draft model learns little per token: it takes more and smaller steps than a target.
DRAFT_HYPER = Hyper(batches_per_step=2)

HEAD_SIZES = 4
"""Sizes of the LM head's input; each is compiled once."""


@dataclass(frozen=True)
class DraftFigures:
    """Figures on held rows by domain.

    loss: the training loss in nats per answer token. agreement: with the target, if distilled.
    """

    loss: dict[str, float]
    agreement: dict[str, float]


def train_draft(
    draft: Llama, train: TokenRows, held: TokenRows, run: Run, teacher: Llama | None = None
) -> DraftFigures:
    """Train a draft model and save it to `run.out`.

    Without `teacher` it learns the corpus by cross-entropy. With one it learns the teacher's
    distribution over `train`'s answers (KL(p || q), the forward direction of arXiv 2310.08461).
    """
    draft = draft.to(run.device)
    if teacher is not None:
        teacher = teacher.to(run.device).eval().requires_grad_(False)

    def evaluate() -> dict[str, float]:
        return held_divergence(draft, teacher, held) if teacher else held_loss(draft, held)

    loss = distillation_loss(draft, teacher) if teacher else next_token_loss(draft)
    trainer = Trainer(draft, loss, run, evaluate)
    trainer.run(batches(train, run.hyper.tokens_per_batch, run.seed))
    draft.save(run.out)
    return DraftFigures(evaluate(), agreement(draft, teacher, held) if teacher else {})


def distillation_loss(draft: Llama, teacher: Llama) -> Loss:
    """Return the weighted mean of KL(p || q) in nats, p the target's distribution, q the draft's.

    LM heads compute only positions with a weight: over a large vocabulary the others would cost
    more than the draft model itself.
    """

    def loss(inputs: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
        del labels
        with torch.no_grad():
            theirs = teacher.hidden(inputs).flatten(0, 1)
        ours = draft.hidden(inputs).flatten(0, 1)
        chosen, chosen_weight = weighed(weight)
        with torch.no_grad():
            p = teacher.logits(theirs[chosen]).float().log_softmax(-1)
        q = draft.logits(ours[chosen]).float().log_softmax(-1)
        each = F.kl_div(q, p, reduction="none", log_target=True).sum(-1)
        mean: Tensor = (each * chosen_weight).sum() / chosen_weight.sum().clamp_min(1.0)
        return mean

    return loss


@torch.compiler.disable  # type: ignore[untyped-decorator]
def weighed(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return flat positions (int64) at which `weight` [b, t] is above 0, and their weights.

    Other positions pad the count to a multiple of b * t / HEAD_SIZES, since each shape is compiled
    once.
    """
    flat = weight.flatten()
    part = -(-flat.numel() // HEAD_SIZES)
    parts = max(1, -(-int((flat > 0).sum()) // part))
    chosen = (flat > 0).byte().argsort(descending=True, stable=True)[: parts * part]
    return chosen, flat[chosen]


def held_divergence(
    draft: Llama, teacher: Llama, held: TokenRows, rows_per_domain: int = 24
) -> dict[str, float]:
    """Return KL(p || q) in nats per answer token of the held text, by domain."""

    def divergence(ids: Tensor, answer: Tensor) -> Tensor:
        p, q = (m.logits(m.hidden(ids[None, :-1])[0][answer]) for m in (teacher, draft))
        p, q = p.float().log_softmax(-1), q.float().log_softmax(-1)
        return F.kl_div(q, p, reduction="none", log_target=True).sum(-1)

    return mean_by_domain(held, rows_per_domain, draft.device, divergence)


def agreement(
    draft: Llama, teacher: Llama, held: TokenRows, rows_per_domain: int = 24
) -> dict[str, float]:
    """Return by domain the share of answer tokens at which both models have the same best token.

    This is the acceptance rate of a single greedy draft token along the held text.
    """

    def same(ids: Tensor, answer: Tensor) -> Tensor:
        ours, theirs = (
            m.logits(m.hidden(ids[None, :-1])[0][answer]).argmax(-1) for m in (draft, teacher)
        )
        return (ours == theirs).float()

    return mean_by_domain(held, rows_per_domain, draft.device, same)
