"""Training a draft model: first on the corpus, then distilled on what the target itself writes."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from training.held import mean_by_domain
from training.model import Llama
from training.target import held_loss, next_token_loss
from training.tokens import TokenRows, batches
from training.trainer import Hyper, Loss, Run, Trainer

# a draft has little to say per token, so it learns from more and smaller steps than a target
DRAFT_HYPER = Hyper(batches_per_step=2)

HEAD_SIZES = 4
"""How many sizes of the head's input there are, and so how often that part is compiled."""


@dataclass(frozen=True)
class DraftFigures:
    """By domain, on held rows: the loss it was trained on (nats per answer token), and where it
    was distilled its agreement with the target."""

    loss: dict[str, float]
    agreement: dict[str, float]


def train_draft(
    draft: Llama, train: TokenRows, held: TokenRows, run: Run, teacher: Llama | None = None
) -> DraftFigures:
    """Train a draft model and save it to `run.out`.

    Without `teacher` it learns the corpus by cross-entropy; with one it learns the teacher's whole
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
    """Weighted mean KL divergence from the target's distribution to the draft's, in nats.

    Both heads see only the positions that weigh: over a vocabulary of thousands the rest would
    cost more than the draft itself.
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
    """Flat positions (int64) at which `weight` [b, t] is above 0, and the weights there.

    Others follow until the count is a multiple of b * t / HEAD_SIZES: compiled code wants few
    shapes, and by the same token never sees the [b, t] that it would be compiled anew for.
    """
    flat = weight.flatten()
    part = -(-flat.numel() // HEAD_SIZES)
    parts = max(1, -(-int((flat > 0).sum()) // part))
    chosen = (flat > 0).byte().argsort(descending=True, stable=True)[: parts * part]
    return chosen, flat[chosen]


def held_divergence(
    draft: Llama, teacher: Llama, held: TokenRows, rows_per_domain: int = 24
) -> dict[str, float]:
    """KL(p || q) in nats per answer token of the held text, by domain."""

    def divergence(ids: Tensor, answer: Tensor) -> Tensor:
        p, q = (m.logits(m.hidden(ids[None, :-1])[0][answer]) for m in (teacher, draft))
        p, q = p.float().log_softmax(-1), q.float().log_softmax(-1)
        return F.kl_div(q, p, reduction="none", log_target=True).sum(-1)

    return mean_by_domain(held, rows_per_domain, draft.device, divergence)


def agreement(
    draft: Llama, teacher: Llama, held: TokenRows, rows_per_domain: int = 24
) -> dict[str, float]:
    """Share of answer tokens at which draft and target have the same favourite, by domain: the
    acceptance rate of a single greedy draft token along the held text."""

    def same(ids: Tensor, answer: Tensor) -> Tensor:
        ours, theirs = (
            m.logits(m.hidden(ids[None, :-1])[0][answer]).argmax(-1) for m in (draft, teacher)
        )
        return (ours == theirs).float()

    return mean_by_domain(held, rows_per_domain, draft.device, same)
