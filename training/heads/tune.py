"""Tune a bundle's head on answers that its target gave while serving."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from schemas import Sample, TuningJob, Verdict
from schemas.json_files import json_lines
from training.generations import Answer, answer_rows
from training.heads.head import Head
from training.heads.judge import judge
from training.heads.kinds import continued_head, load_head, new_head
from training.heads.replay import read_replay
from training.heads.stored import StoredHead
from training.heads.teacher import Teacher
from training.heads.train import HEAD_HYPER, Plan, fit_head
from training.heads.vocabulary import covering_words
from training.tokens import TokenRows, mixed
from training.trainer import Budget, Hyper, Run

HYPER = Hyper(matrix_lr=5e-4, other_lr=7.5e-5, batches_per_step=1, compile=False)
"""Compiling would need a C++ compiler where the service runs.

SmolLM2's EAGLE-3 head, tuned on 60,000 answer tokens of one kind, gained 2.0% tokens per step on
that kind and lost 1.3% on other kinds. At four times these rates it gained 2.3% and lost 4.0%.
"""
NEW_HYPER = replace(HEAD_HYPER, tokens_per_batch=1024, compile=False)
"""Small batches: 10 passes over 30,000 answer tokens are 600 steps."""
YOUNG_HYPER = replace(NEW_HYPER, matrix_lr=2e-3, other_lr=3e-4)
"""A head that had learned from 30,000 answer tokens of one kind got 22,000 more. Five passes over
all of them at these rates gained 1.9% tokens per step, ten at NEW_HYPER's lost 4.8%. On ten kinds,
with 30,000 more, they gained 2.4% and 2.2%."""
POSITIONS, NEW_POSITIONS = 2, 4
LENGTHS = (512, 1024, 2048)
WHOLE = 0.9
"""Packed rows have the smallest of LENGTHS that holds this share of the samples whole."""
REPLAY_SHARE = 0.3
WARMUP_SHARE = 0.05
CACHE_GB = 4.0
CHECKPOINT_SECONDS = 60.0


def run_job(job: TuningJob, report: Callable[[str], None] = print) -> Verdict:
    """Tune a head and judge it, and if it is refused, its mean with its parent.

    An interrupted job continues from its last checkpoint and gives the same head. Raises ValueError
    if the target or the head cannot be trained, or no sample has an answer.
    """
    torch.set_num_threads(job.threads)
    teacher = Teacher.load(job.target, job.device)
    tune(teacher, job, report)
    parent, own = (
        load_head(StoredHead(folder, job.part), teacher) if folder else None
        for folder in (job.parent, job.own)
    )
    tuned = load_head(StoredHead(job.out, job.part), teacher)
    candidates = [tuned] if parent is None else [tuned, _mean(job, parent, teacher)]
    held = [*_samples(job.held), *read_replay(job.replay).held]
    verdicts = judge(teacher, parent, candidates, held, own)
    best = next((i for i, verdict in enumerate(verdicts) if verdict.better), 0)
    if best:
        candidates[best].save(job.out)
    return verdicts[best]


@torch.no_grad()
def _mean(job: TuningJob, parent: Head, teacher: Teacher) -> Head:
    """Return the mean of the tuned head and its parent, which keeps more of what the parent has
    learned elsewhere (arXiv 2109.01903)."""
    head = load_head(StoredHead(job.out, job.part), teacher)
    before = dict(parent.named_parameters())
    for name, weight in head.named_parameters():
        weight.add_(before[name]).div_(2.0)
    return head


def tune(teacher: Teacher, job: TuningJob, report: Callable[[str], None] = print) -> None:
    """Train a copy of the job's parent, which keeps its shape, or a new head, into `job.out`.

    Raises ValueError as `run_job` does.
    """
    samples = _samples(job.samples)
    if not samples:
        raise ValueError(f"{job.samples}: there is no answer to learn from")
    length = _length(samples)
    rows = _rows(samples, read_replay(job.replay).learned, length)
    torch.manual_seed(job.seed)
    if job.parent is None:
        parent, positions, hyper = None, NEW_POSITIONS, NEW_HYPER
        words = covering_words(rows, len(teacher.lm_head))
        head = new_head(job.part, teacher, words, positions)
    else:
        parent, hyper = StoredHead(job.parent, job.part), YOUNG_HYPER if job.young else HYPER
        positions = parent.positions if job.part == "medusa" else POSITIONS
        head = continued_head(parent, teacher)
    plan = Plan(
        positions=positions,
        features=job.folder / "features",
        length=length,
        cache_gb=CACHE_GB,
        start=parent,
    )
    run = Run(
        folder=job.folder,
        out=job.out,
        budget=Budget(job.tokens, warmup_tokens=int(WARMUP_SHARE * job.tokens)),
        hyper=hyper,
        seed=job.seed,
        device=job.device,
        report=report,
        checkpoint_seconds=CHECKPOINT_SECONDS,
    )
    fit_head(head.to(teacher.device), teacher, rows, run, plan, dict)
    # What is left to do may need the room.
    shutil.rmtree(plan.features, ignore_errors=True)


def _samples(file: Path) -> list[Sample]:
    return [Sample.model_validate(line) for _, line in json_lines(file)]


def _length(samples: Sequence[Sample]) -> int:
    sizes = sorted(sample.tokens for sample in samples)
    wanted = sizes[int(WHOLE * (len(sizes) - 1))]
    return next((length for length in LENGTHS if wanted <= length), LENGTHS[-1])


def _rows(samples: Sequence[Sample], replayed: Sequence[Sample], length: int) -> TokenRows:
    """Return the samples with REPLAY_SHARE of replayed answers, so that the head keeps what it
    drafts in other kinds of text."""
    rows = _answers(samples, length)
    return mixed(rows, _answers(replayed, length), REPLAY_SHARE) if replayed else rows


def _answers(samples: Sequence[Sample], length: int) -> TokenRows:
    found = [Answer(s.prompt_token_ids, s.answer_token_ids, s.fit_id) for s in samples]
    return answer_rows(found, length)
