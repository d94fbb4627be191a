"""Training a target: next-token prediction, answers weighing more than prompts."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from workers.training.model import Geometry, Llama
from workers.training.tokens import TokenRows, batches
from workers.training.trainer import Budget, Hyper, Loss, Trainer

TARGET_HYPER = Hyper()


def train_target(
    geometry: Geometry,
    train: TokenRows,
    held: TokenRows,
    folder: Path,
    out: Path,
    budget: Budget,
    hyper: Hyper = TARGET_HYPER,
    seed: int = 0,
    device: str = "cpu",
    report: Callable[[str], None] = print,
) -> dict[str, float]:
    """Train (or go on training) a target and save it to `out`; returns held loss by domain."""
    torch.manual_seed(seed)
    model = Llama(geometry).to(device)
    trainer = Trainer(
        model,
        next_token_loss(model),
        folder,
        budget,
        hyper,
        evaluate=lambda: held_loss(model, held),
        report=report,
    )
    trainer.run(batches(train, hyper.tokens_per_batch, seed))
    model.save(out)
    return held_loss(model, held, rows_per_domain=200)


def next_token_loss(model: Llama) -> Loss:
    """Weighted cross-entropy in nats per unit of weight."""

    def loss(inputs: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
        logits = model(inputs)
        each = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="none")
        weight = weight.flatten()
        return (each * weight).sum() / weight.sum().clamp_min(1.0)

    return loss


@torch.no_grad()
def held_loss(model: Llama, held: TokenRows, rows_per_domain: int = 24) -> dict[str, float]:
    """Mean nats per answer token by domain, over the first rows of each; "mean" weighs domains
    equally."""
    device = next(model.parameters()).device
    result: dict[str, float] = {}
    for d, name in enumerate(held.domains):
        chosen = np.flatnonzero(held.domain == d)[:rows_per_domain]
        total = count = 0.0
        for i in chosen:
            ids, weight = (torch.from_numpy(a[:2048].copy()).to(device) for a in held.row(int(i)))
            ids = ids.long()
            answer = (weight == 1.0)[1:]
            with torch.autocast(device.type, torch.bfloat16):
                logits = model(ids[None, :-1])[0]
            each = F.cross_entropy(logits.float(), ids[1:], reduction="none")
            total += float(each[answer].sum())
            count += float(answer.sum())
        if count:
            result[name] = total / count
    result["mean"] = float(np.mean(list(result.values())))
    return result
