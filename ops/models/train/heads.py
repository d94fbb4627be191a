"""Train a head as a file of `specadapt train` says."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ops.common.boundary import InputError
from ops.common.output import say
from ops.models.train.settings import HeadTraining
from training.generations import generation_rows
from training.heads.accuracy import HeadFigures
from training.heads.head import Head
from training.heads.kinds import continued_head, new_head
from training.heads.packing import frequent_tokens, picked
from training.heads.stored import StoredHead
from training.heads.teacher import Teacher
from training.heads.train import HEAD_HYPER, Plan, train_head
from training.tokens import TokenRows
from training.trainer import Budget, Hyper, Run
from workers.bundle import load_bundle, name_part

POSITIONS = {"medusa": 4, "eagle": 3, "eagle3": 4}
"""Default number of tokens ahead by kind of head."""
VOCABULARY = {"medusa": 2048, "eagle3": 2048, "eagle": 0}
"""Default vocabulary by kind of head. EAGLE-1/2 uses the target's own LM head."""
HELD_EVERY = 20
"""Every n-th answer is held out."""


def train_from(kind: str, given: HeadTraining) -> HeadFigures:
    """Train a head of a kind, name it in its bundle, and return its figures on held-out answers.

    Raises InputError naming a field that does not fit the target or the head to continue.
    """
    rows = _rows(given.generations)
    held = np.arange(len(rows)) % HELD_EVERY == 0
    learned, judged = (picked(rows, np.flatnonzero(side)) for side in (~held, held))
    work = given.work or Path("runs") / kind
    hyper = _hyper(given)
    run = Run(
        folder=work,
        out=given.out or given.bundle / kind,
        budget=Budget(given.tokens, given.minutes or float("inf"), given.warmup_tokens),
        hyper=hyper,
        seed=given.seed,
        device=_device(given),
        report=say,
        patience=given.patience,
        eval_every=given.eval_every,
    )
    begun = None if given.start is None else StoredHead(given.start, kind)
    folder = given.target or load_bundle(given.bundle).part("target")
    teacher = Teacher.load(folder, run.device, hyper.compile)
    torch.manual_seed(given.seed)
    positions = given.positions or POSITIONS[kind]
    if begun is None:
        size = VOCABULARY[kind] if given.vocabulary is None else given.vocabulary
        words = _words(learned, size, len(teacher.lm_head))
        head = new_head(kind, teacher, words, positions)
    else:
        head, positions = _continued(begun, teacher, given, positions)
    states = given.features or work / "features"
    plan = Plan(positions, states, given.length, cache_gb=given.cache_gb, start=begun)
    figures = train_head(head, teacher, learned, judged, run, plan)
    if given.out is None:
        name_part(given.bundle, kind)
    return figures


def _rows(file: Path) -> TokenRows:
    if not file.is_file():
        raise InputError(f"generations: {file} does not exist; run `specadapt train generate`")
    rows = generation_rows(file)
    if len(rows) < 2:
        raise InputError(f"generations: {file} has one answer; one to learn and one to judge by")
    return rows


def _device(given: HeadTraining) -> str:
    """Return the torch device, and set the number of CPU threads."""
    if given.device == "cuda" and not torch.cuda.is_available():
        raise InputError("device: cuda is not available here; use cpu or auto")
    torch.set_num_threads(given.threads)
    return "cuda" if given.device != "cpu" and torch.cuda.is_available() else "cpu"


def _hyper(given: HeadTraining) -> Hyper:
    share = given.learning_rate / HEAD_HYPER.matrix_lr
    return replace(
        HEAD_HYPER,
        matrix_lr=given.learning_rate,
        other_lr=HEAD_HYPER.other_lr * share,
        tokens_per_batch=given.batch_tokens,
        batches_per_step=given.batches_per_step,
    )


def _words(rows: TokenRows, count: int, target: int) -> Tensor | None:
    """Return the `count` most frequent answer tokens; None where that is all of them."""
    if count in (0, target):
        return None
    if count > target:
        raise InputError(f"vocabulary: {count} is more than the target's {target} tokens")
    return torch.from_numpy(frequent_tokens(rows, count, target))


def _continued(
    begun: StoredHead, teacher: Teacher, given: HeadTraining, positions: int
) -> tuple[Head, int]:
    """Return a head in the shape of the one to continue, and how many tokens ahead it is trained.

    Raises InputError for settings that say otherwise.
    """
    head, target = continued_head(begun, teacher), len(teacher.lm_head)
    spoken = target if begun.vocabulary is None else len(begun.vocabulary)
    if given.vocabulary is not None and (given.vocabulary or target) != spoken:
        raise InputError(
            f"vocabulary: the head in {begun.folder} has a fixed vocabulary of {spoken} tokens; "
            "leave the field out"
        )
    if begun.kind != "medusa":
        return head, positions
    if given.positions not in (None, begun.positions):
        raise InputError(
            f"positions: {begun.folder} has {begun.positions} heads; leave the field out"
        )
    return head, begun.positions
