"""Train a head on text that its target generated."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training.heads.accuracy import HeadFigures, HeldRows
from training.heads.data import batch_tensors
from training.heads.features import FeatureCache
from training.heads.head import Head
from training.heads.loss import head_loss
from training.heads.packing import HeadBatch, PackedRows
from training.heads.stored import StoredHead
from training.heads.teacher import Teacher
from training.tokens import TokenRows
from training.trainer import Hyper, Run, Trainer

# A head is one layer on top of good features: it learns from many small steps.
HEAD_HYPER = Hyper(matrix_lr=6e-3, other_lr=1e-3, batches_per_step=1)


@dataclass(frozen=True)
class Plan:
    """How a head is trained.

    Data is cut into bins of `length` tokens with `positions` drafted tokens per slot; position j
    has the weight decay ** j. `features` is the folder for at most `cache_gb` of the target's
    states, which heads that read the same states of the same text may share. start: a head whose
    weights the training begins with.
    """

    positions: int
    features: Path
    length: int = 512
    decay: float = 0.8
    cache_gb: float = 10.0
    start: StoredHead | None = None


def train_head(
    head: Head,
    teacher: Teacher,
    train: TokenRows,
    held: TokenRows,
    run: Run,
    plan: Plan,
) -> HeadFigures:
    """Train a head, save it to `run.out` and return its figures on held rows."""
    head = head.to(teacher.device)
    tokens = run.hyper.tokens_per_batch
    rows = HeldRows(head, teacher, held, plan.positions, plan.length, tokens)

    def evaluate() -> dict[str, float]:
        figures = rows.measure()
        report_accuracy(figures, run)
        return figures.loss

    fit_head(head, teacher, train, run, plan, evaluate)
    return rows.measure()


def fit_head(
    head: Head,
    teacher: Teacher,
    train: TokenRows,
    run: Run,
    plan: Plan,
    evaluate: Callable[[], Mapping[str, float]],
) -> None:
    """Train a head that is on the teacher's device, and save it to `run.out`.

    `evaluate` returns held losses, as `Trainer` takes them.
    """
    packed = PackedRows(train, plan.length, plan.positions, run.seed)
    cache = FeatureCache(teacher, head.captures, packed, plan.features, plan.cache_gb)
    tokens = run.hyper.tokens_per_batch
    head.calibrate(cache.of(packed.batch(np.arange(tokens // plan.length) % len(packed))))
    if plan.start is not None:
        head.load(plan.start)

    def prepare(batch: HeadBatch, device: torch.device) -> tuple[Tensor, ...]:
        return batch_tensors(batch, cache.of(batch), device)

    run.report(f"{len(train)} rows, a pass is {len(packed)} bins of {plan.length} tokens")
    trainer = Trainer(head, head_loss(head, teacher.lm_head, plan.decay), run, evaluate, prepare)
    trainer.run(packed.batches(tokens))
    head.save(run.out)


def report_accuracy(figures: HeadFigures, run: Run) -> None:
    """Report accuracies by position, and append all figures to accuracy.jsonl."""
    with (run.folder / "accuracy.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(figures)) + "\n")
    shares = [f"{100 * p[0]:.1f}/{100 * p[-1]:.1f}" for p in figures.accuracy]
    run.report(
        f"held: top-1/top-{len(figures.accuracy[0])} by position, %: {' '.join(shares)}; a greedy "
        f"chain has {figures.chain['mean']:.2f} tokens accepted"
    )
