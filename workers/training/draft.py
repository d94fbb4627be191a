"""Training a draft model: first on the corpus, then distilled on what the target itself writes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from workers.training.model import Geometry, Llama
from workers.training.target import held_loss, next_token_loss
from workers.training.tokens import TokenRows, batches
from workers.training.trainer import Budget, Hyper, Loss, Trainer

# a draft has little to say per token, so it learns from more and smaller steps than a target
DRAFT_HYPER = Hyper(batches_per_step=2)


def train_draft(
    geometry: Geometry,
    train: TokenRows,
    held: TokenRows,
    folder: Path,
    out: Path,
    budget: Budget,
    hyper: Hyper = DRAFT_HYPER,
    seed: int = 0,
    device: str = "cpu",
    report: Callable[[str], None] = print,
    target: Path | None = None,
    start: Path | None = None,
) -> dict[str, float]:
    """Train a draft model and save it to `out`; returns agreement with the target by domain, or
    the held loss where no target is given.

    Without `target` it learns the corpus by cross-entropy; with one it learns the target's whole
    distribution over `train`'s answers (KL(p || q), the forward direction of arXiv 2310.08461),
    starting from the weights in `start` where given.
    """
    torch.manual_seed(seed)
    draft = (Llama.load(start) if start else Llama(geometry)).to(device)
    teacher = Llama.load(target).to(device).eval().requires_grad_(False) if target else None

    def evaluate() -> dict[str, float]:
        return agreement(draft, teacher, held) if teacher else held_loss(draft, held)

    loss = distillation_loss(draft, teacher) if teacher else next_token_loss(draft)
    trainer = Trainer(draft, loss, folder, budget, hyper, evaluate, report)
    trainer.run(batches(train, hyper.tokens_per_batch, seed))
    draft.save(out)
    return evaluate()


def distillation_loss(draft: Llama, teacher: Llama) -> Loss:
    """Weighted mean KL divergence from the target's distribution to the draft's, in nats."""

    def loss(inputs: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
        del labels
        with torch.no_grad():
            p = teacher(inputs).flatten(0, 1).float().log_softmax(-1)
        q = draft(inputs).flatten(0, 1).float().log_softmax(-1)
        each = F.kl_div(q, p, reduction="none", log_target=True).sum(-1)
        weight = weight.flatten()
        return (each * weight).sum() / weight.sum().clamp_min(1.0)

    return loss


@torch.no_grad()
def agreement(
    draft: Llama, teacher: Llama, held: TokenRows, rows_per_domain: int = 24
) -> dict[str, float]:
    """Share of answer tokens at which draft and target have the same favourite, by domain: the
    acceptance rate of a single greedy draft token along the held text."""
    device = next(draft.parameters()).device
    result: dict[str, float] = {}
    for d, name in enumerate(held.domains):
        same = count = 0.0
        for i in np.flatnonzero(held.domain == d)[:rows_per_domain]:
            ids, weight = (torch.from_numpy(a[:2048].copy()).to(device) for a in held.row(int(i)))
            with torch.autocast(device.type, torch.bfloat16):
                ours = draft(ids.long()[None, :-1])[0].argmax(-1)
                theirs = teacher(ids.long()[None, :-1])[0].argmax(-1)
            answer = (weight == 1.0)[1:]
            same += float((ours == theirs)[answer].sum())
            count += float(answer.sum())
        if count:
            result[name] = same / count
    result["mean"] = float(np.mean(list(result.values())))
    return result
