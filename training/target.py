"""Train a target by next-token prediction; answers weigh more than prompts."""

import torch.nn.functional as F
from torch import Tensor

from training.held import mean_by_domain
from training.model import Llama
from training.tokens import TokenRows, batches
from training.trainer import Hyper, Loss, Run, Trainer

TARGET_HYPER = Hyper()


def train_target(model: Llama, train: TokenRows, held: TokenRows, run: Run) -> dict[str, float]:
    """Train a target, or continue, and save it to `run.out`. Return the held loss by domain."""
    model = model.to(run.device)
    trainer = Trainer(model, next_token_loss(model), run, lambda: held_loss(model, held))
    trainer.run(batches(train, run.hyper.tokens_per_batch, run.seed))
    model.save(run.out)
    return held_loss(model, held, rows_per_domain=200)


def next_token_loss(model: Llama) -> Loss:
    """Return the weighted cross-entropy in nats per unit of weight."""

    def loss(inputs: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
        logits = model(inputs)
        each = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="none")
        weight = weight.flatten()
        return (each * weight).sum() / weight.sum().clamp_min(1.0)

    return loss


def held_loss(model: Llama, held: TokenRows, rows_per_domain: int = 24) -> dict[str, float]:
    """Return the mean nats per answer token by domain, over the first rows of each.

    "mean" weighs domains equally.
    """

    def nats(ids: Tensor, answer: Tensor) -> Tensor:
        logits = model.logits(model.hidden(ids[None, :-1])[0][answer])
        return F.cross_entropy(logits.float(), ids[1:][answer], reduction="none")

    return mean_by_domain(held, rows_per_domain, model.device, nats)
