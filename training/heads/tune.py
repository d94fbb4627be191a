"""Tune a bundle's head on answers that its target gave while serving."""

from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

import torch

from schemas import Sample, TuningJob, Verdict
from schemas.json_files import json_lines
from training.generations import Answer, answer_rows, read_generations
from training.heads.judge import REPLAY, judge
from training.heads.kinds import continued_head, load_head
from training.heads.stored import StoredHead
from training.heads.teacher import Teacher
from training.heads.train import Plan, fit_head
from training.tokens import TokenRows, mixed
from training.trainer import Budget, Hyper, Run

HYPER = Hyper(matrix_lr=5e-4, other_lr=7.5e-5, batches_per_step=1, compile=False)
"""Compiling would need a C++ compiler where the service runs.

SmolLM2's EAGLE-3 head, tuned on 60,000 answer tokens of one kind, gained 2.0% tokens per step on
that kind and lost 1.3% on other kinds. At four times these rates it gained 2.3% and lost 4.0%.
"""
POSITIONS = 2
LENGTHS = (512, 1024, 2048)
WHOLE = 0.9
"""Packed rows have the smallest of LENGTHS that holds this share of the samples whole."""
REPLAY_SHARE = 0.3
WARMUP_SHARE = 0.05
CACHE_GB = 4.0
CHECKPOINT_SECONDS = 60.0


def run_job(job: TuningJob, report: Callable[[str], None] = print) -> Verdict:
    """Tune a head and judge it.

    An interrupted job continues from its last checkpoint and gives the same head. Raises ValueError
    if the target or the head cannot be trained, or no sample has an answer.
    """
    torch.set_num_threads(job.threads)
    teacher = Teacher.load(job.target, job.device)
    tune(teacher, job, report)
    parent, candidate = (
        load_head(StoredHead(folder, job.part), teacher) for folder in (job.parent, job.out)
    )
    others = [answer for answer in _replayed(job.replay) if answer.held]
    return judge(teacher, parent, candidate, [*_samples(job.held), *others])


def tune(teacher: Teacher, job: TuningJob, report: Callable[[str], None] = print) -> None:
    """Train a copy of the job's parent, which keeps its shape and vocabulary, into `job.out`.

    Raises ValueError as `run_job` does.
    """
    parent = StoredHead(job.parent, job.part)
    samples = _samples(job.samples)
    if not samples:
        raise ValueError(f"{job.samples}: there is no answer to learn from")
    length = _length(samples)
    torch.manual_seed(job.seed)
    head = continued_head(parent, teacher).to(teacher.device)
    plan = Plan(
        positions=parent.positions if job.part == "medusa" else POSITIONS,
        features=job.folder / "features",
        length=length,
        cache_gb=CACHE_GB,
        start=parent,
    )
    run = Run(
        folder=job.folder,
        out=job.out,
        budget=Budget(job.tokens, warmup_tokens=int(WARMUP_SHARE * job.tokens)),
        hyper=HYPER,
        seed=job.seed,
        device=job.device,
        report=report,
        checkpoint_seconds=CHECKPOINT_SECONDS,
    )
    others = [answer for answer in _replayed(job.replay) if not answer.held]
    fit_head(head, teacher, _rows(samples, others, length), run, plan, dict)


def _samples(file: Path) -> list[Sample]:
    return [Sample.model_validate(line) for _, line in json_lines(file)]


def _length(samples: Sequence[Sample]) -> int:
    sizes = sorted(sample.tokens for sample in samples)
    wanted = sizes[int(WHOLE * (len(sizes) - 1))]
    return next((length for length in LENGTHS if wanted <= length), LENGTHS[-1])


def _replayed(file: Path | None) -> list[Sample]:
    """Return answers that `specadapt train generate` wrote."""
    return [
        Sample(
            id=str(line["id"]),
            conversation=sha256(str(line["id"]).encode()).hexdigest(),
            owner="",
            fit_id=REPLAY,
            cluster=-1,
            method="naive",
            temperature=line["temperature"],
            prompt_token_ids=line["prompt"],
            answer_token_ids=line["answer"],
            time=0.0,
        )
        for line in (read_generations(file) if file else ())
        if line["answer"]
    ]


def _rows(samples: Sequence[Sample], replayed: Sequence[Sample], length: int) -> TokenRows:
    """Return the samples with REPLAY_SHARE of replayed answers, so that the head keeps what it
    drafts in other kinds of text."""
    rows = _answers(samples, length)
    return mixed(rows, _answers(replayed, length), REPLAY_SHARE) if replayed else rows


def _answers(samples: Sequence[Sample], length: int) -> TokenRows:
    found = [Answer(s.prompt_token_ids, s.answer_token_ids, s.fit_id) for s in samples]
    return answer_rows(found, length)
