"""Train a head as a file of `specadapt train` says."""

from pathlib import Path

import torch
from torch import Tensor

from ops.common.boundary import InputError
from ops.common.output import say
from ops.models.train.settings import HeadTraining
from training.generations import generated_texts
from training.heads import StoredHead, continued_head, load_head, new_head
from training.judge import tokens_per_step
from training.packing import frequent_tokens
from training.teacher import Teacher
from training.trainer import Run, train_head
from workers.bundle import load_bundle, name_part

POSITIONS = {"medusa": 4, "eagle": 3, "eagle3": 4}
"""Default number of tokens ahead by kind of head."""
VOCABULARY = {"medusa": 2048, "eagle3": 2048, "eagle": 0}
"""Default vocabulary by kind of head. EAGLE-1/2 uses the target's own LM head."""
HELD_EVERY = 20
"""Every n-th answer is held out."""


def train_from(kind: str, given: HeadTraining) -> dict[str, float]:
    """Train a head of a kind, name it in its bundle, and return its tokens per step by domain on
    held-out responses.

    Raises InputError naming a field that does not fit the target or the head to continue.
    """
    if not given.generations.is_file():
        file = given.generations
        raise InputError(f"generations: {file} does not exist; run `specadapt train generate`")
    texts = generated_texts(given.generations)
    if len(texts) < 2:
        raise InputError(f"generations: {given.generations} needs at least two answers")
    held = texts[::HELD_EVERY]
    del texts[::HELD_EVERY]
    begun = None if given.start is None else StoredHead(given.start, kind)
    teacher = Teacher.load(load_bundle(given.bundle).part("target"), _device(given))
    torch.manual_seed(given.seed)
    positions = given.positions or POSITIONS[kind]
    if begun is None:
        size = VOCABULARY[kind] if given.vocabulary is None else given.vocabulary
        vocabulary = len(teacher.lm_head)
        if size > vocabulary:
            raise InputError(f"vocabulary: {size} is more than the target's {vocabulary} tokens")
        words: Tensor | None = None
        if size not in (0, vocabulary):
            words = torch.from_numpy(frequent_tokens(texts, vocabulary, size))
        head = new_head(kind, teacher, words, positions)
    else:
        if given.vocabulary is not None or (begun.positions and given.positions):
            raise InputError("start: the head has its vocabulary and positions: leave them out")
        head = continued_head(begun, teacher)
        positions = begun.positions or positions
    run = Run(
        folder=given.work or Path("runs") / kind,
        out=given.out or given.bundle / kind,
        tokens=given.tokens,
        positions=positions,
        learning_rate=given.learning_rate,
        minutes=given.minutes or float("inf"),
        batch_tokens=given.batch_tokens,
        length=given.length,
        cache_gb=given.cache_gb,
        start=begun,
        seed=given.seed,
        report=say,
    )
    train_head(head, teacher, texts, run)
    if given.out is None:
        name_part(given.bundle, kind)
    return tokens_per_step(teacher, load_head(StoredHead(run.out, kind), teacher), held)


def _device(given: HeadTraining) -> str:
    """Return the torch device, and set the number of CPU threads."""
    if given.device == "cuda" and not torch.cuda.is_available():
        raise InputError("device: cuda is not available here; use cpu or auto")
    torch.set_num_threads(given.threads)
    return "cuda" if given.device != "cpu" and torch.cuda.is_available() else "cpu"
