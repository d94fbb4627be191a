"""Tune a bundle's head on answers that its target gave while serving."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from schemas import Sample, TuningJob, Verdict
from schemas.json_files import json_lines
from training.generations import read_generations
from training.heads import StoredHead, continued_head, load_head, new_head
from training.judge import LARGE_GROUP, REPLAY, judge
from training.packing import Text, frequent_tokens, mixed, token_counts
from training.teacher import Teacher
from training.trainer import Run, train_head

LEARNING_RATE, YOUNG_RATE, NEW_RATE = 5e-4, 2e-3, 6e-3
"""SmolLM2's EAGLE-3 head, tuned on 60,000 answer tokens of one kind, gained 2.0% tokens per step on
that kind and lost 1.3% on other kinds. At four times the rate it gained 2.3% and lost 4.0%.

A head that had learned from 30,000 answer tokens of one kind got 22,000 more. Five passes over
all of them at YOUNG_RATE gained 1.9% tokens per step, ten at NEW_RATE lost 4.8%. On ten kinds, with
30,000 more, they gained 2.4% and 2.2%."""
BATCH_TOKENS, NEW_BATCH_TOKENS = 4096, 1024
"""Small batches for heads that are not yet trained: 10 passes over 30,000 answer tokens are 600
steps."""
POSITIONS, NEW_POSITIONS = 2, 4
LENGTHS = (512, 1024, 2048)
WHOLE = 0.9
"""Packed texts have the smallest of LENGTHS that holds this share of the samples whole."""
REPLAY_SHARE = 0.3
CHECKPOINT_SECONDS = 60.0
COVERED, LEAST_WORDS = 0.995, 2048
"""A new head drafts the most frequent tokens, so many that they make up this share of the
responses; and at least so many."""


def run_job(job: TuningJob, report: Callable[[str], None] = print) -> Verdict:
    """Tune a head and judge it.

    An interrupted job continues from its last checkpoint and gives the same head. Raises ValueError
    if the target or the head cannot be trained, or no sample has a response.
    """
    teacher = Teacher.load(job.target, job.device)
    tune(teacher, job, report)
    parent, own = (
        load_head(StoredHead(folder, job.part), teacher) if folder else None
        for folder in (job.parent, job.own)
    )
    tuned = load_head(StoredHead(job.out, job.part), teacher)
    held = [*_samples(job.held), *read_replay(job.replay)[1]]
    return judge(teacher, parent, tuned, held, own)


def tune(teacher: Teacher, job: TuningJob, report: Callable[[str], None] = print) -> None:
    """Train a copy of the job's parent, which keeps its shape, or a new head, into `job.out`.

    Raises ValueError as `run_job` does.
    """
    samples = _samples(job.samples)
    sizes = sorted(sample.tokens for sample in samples) or [0]
    wanted = sizes[int(WHOLE * (len(sizes) - 1))]
    length = next((length for length in LENGTHS if wanted <= length), LENGTHS[-1])
    texts = _texts(samples, length)
    if replayed := read_replay(job.replay)[0]:
        # So that the head keeps what it drafts in other kinds of text.
        texts = mixed(texts, _texts(replayed, length), REPLAY_SHARE)
    torch.manual_seed(0)
    if job.parent is None:
        parent, positions, rate = None, NEW_POSITIONS, NEW_RATE
        words = _covering_words(texts, len(teacher.lm_head))
        head = new_head(job.part, teacher, words, positions)
    else:
        parent, rate = StoredHead(job.parent, job.part), YOUNG_RATE if job.young else LEARNING_RATE
        positions = parent.positions if job.part == "medusa" else POSITIONS
        head = continued_head(parent, teacher)
    run = Run(
        folder=job.folder,
        out=job.out,
        tokens=job.tokens,
        positions=positions,
        learning_rate=rate,
        batch_tokens=NEW_BATCH_TOKENS if rate > LEARNING_RATE else BATCH_TOKENS,
        length=length,
        start=parent,
        report=report,
        checkpoint_seconds=CHECKPOINT_SECONDS,
    )
    train_head(head, teacher, texts, run)


def read_replay(file: Path | None) -> tuple[list[Sample], list[Sample]]:
    """Return the responses of a file that `specadapt train generate` wrote: to learn, and held-out.

    There are none without a file. A tenth is held out. If there are several domains, each has a
    group of its own for the judge, and a domain that can spare it has LARGE_GROUP held-out
    responses: with fewer, its loss would not count.
    """
    lines = [line for line in (read_generations(file) if file else ()) if line["answer"]]
    domains = {line["domain"] for line in lines}
    groups = defaultdict[str, list[Sample]](list)
    for line in lines:
        group = f"{REPLAY} {line['domain']}" if len(domains) > 1 else REPLAY
        sample = Sample(
            id=str(line["id"]),
            conversation=sha256(str(line["id"]).encode()).hexdigest(),
            owner="",
            fit_id=group,
            cluster=-1,
            method="naive",
            temperature=line["temperature"],
            prompt_token_ids=line["prompt"],
            answer_token_ids=line["answer"],
            time=0.0,
        )
        groups[group].append(sample)
    learned, held = list[Sample](), list[Sample]()
    for samples in groups.values():
        samples.sort(key=lambda sample: (not sample.held, sample.conversation))
        least = LARGE_GROUP if len(samples) >= 2 * LARGE_GROUP else 0
        count = max(least, sum(sample.held for sample in samples))
        held.extend(samples[:count])
        learned.extend(samples[count:])
    return learned, held


def _covering_words(texts: Sequence[Text], vocabulary: int) -> Tensor | None:
    """Return the tokens that a new head drafts, int64 [k] ascending, None for all."""
    counts = np.sort(token_counts(texts, vocabulary))[::-1].cumsum()
    count = max(LEAST_WORDS, 1 + int(np.searchsorted(counts, COVERED * counts[-1])))
    if count >= vocabulary:
        return None
    return torch.from_numpy(frequent_tokens(texts, vocabulary, count))


def _samples(file: Path) -> list[Sample]:
    return [Sample.model_validate(line) for _, line in json_lines(file)]


def _texts(samples: Sequence[Sample], length: int) -> list[Text]:
    return [Text.of(s.prompt_token_ids, s.answer_token_ids, longest=length) for s in samples]
