"""A language that a tiny model learns in seconds: counting in steps."""

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from schemas import Sample
from tests.training.packed_texts import batches
from training.heads.kinds import new_head
from training.heads.teacher import Teacher
from training.model import Geometry, Llama
from training.tokens import TokenRows
from training.trainer import Budget, Hyper, Loss, Run, Trainer

GEOMETRY = Geometry(hidden=32, layers=2, heads=2, kv_heads=1, ffn=64, vocab=64, context=2048)
HYPER = Hyper(tokens_per_batch=512, batches_per_step=1, compile=False)


@dataclass(frozen=True)
class Counting:
    """A trained target, its held rows, their losses by domain, and the folder with its log."""

    model: Llama
    held: TokenRows
    losses: dict[str, float]
    work: Path


def train_counting(folder: Path) -> Counting:
    """Train a target of three layers, as EAGLE-3 reads so many; half a minute where bfloat16 is
    slow."""
    torch.manual_seed(0)
    model, held = Llama(replace(GEOMETRY, layers=3)), make_rows(40, seed=1)
    losses = train_target(model, make_rows(400), held, make_run(folder, 60_000))
    return Counting(model, held, losses, folder / "work")


def train_target(model: Llama, train: TokenRows, held: TokenRows, run: Run) -> dict[str, float]:
    """Train a target by next-token prediction; return the held loss."""
    trainer = Trainer(
        model, next_token_loss(model), run, lambda: held_loss(model, held), target_tensors
    )
    trainer.run(target_batches(train, run.hyper.tokens_per_batch, run.seed))
    return held_loss(model, held)


def target_batches(rows: TokenRows, tokens: int, seed: int = 0) -> Any:
    return batches(rows, tokens, seed)


def target_tensors(batch: Any, _device: torch.device) -> tuple[Tensor, ...]:
    arrays = (batch.inputs, batch.labels, batch.weight)
    return tuple(map(torch.from_numpy, arrays))


def next_token_loss(model: Llama) -> Loss:
    """Weighted cross-entropy in nats per unit of weight."""

    def loss(inputs: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
        logits = model(inputs)
        each = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="none")
        return (each * weight.flatten()).sum() / weight.sum().clamp_min(1.0)

    return loss


@torch.no_grad()
def held_loss(model: Llama, held: TokenRows) -> dict[str, float]:
    loss = next_token_loss(model)
    batch = next(target_batches(answers_only(held), 4096))
    return {"mean": float(loss(*target_tensors(batch, model.device)))}


def answers_only(rows: TokenRows) -> TokenRows:
    """The rows with a weight of 0 for prompts."""
    return replace(rows, weight=(rows.weight == 1.0).astype(np.float32))


def save_bundle(counting: Counting, folder: Path) -> Path:
    """Write a bundle of the target and untrained heads that draft the language's words."""
    parts = ("eagle3", "eagle", "medusa")
    counting.model.save(folder / "target")
    teacher = Teacher.load(folder / "target")
    torch.manual_seed(0)
    for part in parts:
        new_head(part, teacher, torch.arange(6, 64), 2).save(folder / part)
    body = {"name": "counting", "parts": {part: part for part in ("target", *parts)}}
    (folder / "bundle.json").write_text(json.dumps(body))
    return folder


def make_samples(count: int) -> list[Sample]:
    """Answers in the language, one a second: of two clusters, half of them at temperature 0."""
    rows = make_rows(count, seed=2)
    return [
        Sample(
            id=str(i),
            conversation=hashlib.sha256(str(i).encode()).hexdigest(),
            owner="",
            fit_id="fit",
            cluster=i % 2,
            method="eagle3",
            temperature=float(i // 2 % 2),
            prompt_token_ids=tuple(rows.row(i)[0][:3].tolist()),
            answer_token_ids=tuple(rows.row(i)[0][3:].tolist()),
            time=float(i + 1),
        )
        for i in range(count)
    ]


def make_run(folder: Path, budget: Budget | int, **given: Any) -> Run:
    """Return a silent run in `folder`; budget: a number of tokens, or the whole budget."""
    if isinstance(budget, int):
        budget = Budget(tokens=budget, warmup_tokens=2_000)
    settings = {"hyper": HYPER, "report": lambda _: None} | given
    return Run(folder / "work", folder / "out", budget, **settings)


def make_rows(count: int, seed: int = 0, longest: int = 60, domain: str = "counting") -> TokenRows:
    """Counting sequences: the next token is the last one plus a step named by the first token."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        step, start = int(rng.integers(1, 4)), int(rng.integers(8, 60))
        length = int(rng.integers(8, longest))
        rows.append([1, 3 + step, *((start + step * i) % 56 + 8 for i in range(length))])
    lengths = [len(r) for r in rows]
    weight = np.concatenate([[0.25, 0.25] + [1.0] * (n - 2) for n in lengths])
    return TokenRows(
        np.concatenate(rows).astype(np.uint16),
        weight.astype(np.float32),
        np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
        np.ones(count, dtype=np.float32),
        np.zeros(count, dtype=np.int16),
        (domain,),
    )
