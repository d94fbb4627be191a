"""What the training commands share: devices, budgets, splits and prompts."""

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ops.harness.boundary import InputError
from ops.harness.output import say
from ops.models.train.flags import RunFlags, Shape

if TYPE_CHECKING:
    from training.corpus import Row
    from training.model import Llama
    from training.tokens import TokenRows
    from training.trainer import Budget, Hyper, Run


def default_threads() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def training_device(name: str, threads: int | None) -> str:
    """Return the torch device for "auto", "cpu" or "cuda", and set the number of CPU threads."""
    import torch

    if name not in ("auto", "cpu", "cuda"):
        raise InputError(f"--device: {name!r} is not one of auto, cpu, cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("--device: cuda is not available here; use cpu or auto")
    torch.set_num_threads(threads or default_threads())
    return "cuda" if name != "cpu" and torch.cuda.is_available() else "cpu"


def model(
    shape: Shape, start: Path | None, bundle: Path, seed: int, context: typer.Context
) -> "Llama":
    """Return the weights in `start`, or random ones of this shape with the bundle's vocabulary."""
    return _started(start, bundle, context) if start else _fresh(shape, bundle, seed)


def _fresh(shape: Shape, bundle: Path, seed: int) -> "Llama":
    import torch

    from training.model import Geometry, Llama

    if shape.hidden % shape.heads or shape.heads % shape.kv_heads:
        raise InputError("--hidden must be a multiple of --heads, and --heads of --kv-heads")
    torch.manual_seed(seed)
    return Llama(Geometry(**asdict(shape), vocab=_vocabulary(bundle)))


def _started(start: Path, bundle: Path, context: typer.Context) -> "Llama":
    from training.model import Llama

    for name in Shape.__dataclass_fields__:
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            flag = name.replace("_", "-")
            raise InputError(f"--{flag}: the weights of --start set the shape; leave this flag out")
    if not (start / "config.json").is_file():
        raise InputError(f"--start: {start} holds no model (no config.json)")
    model, vocab = Llama.load(start), _vocabulary(bundle)
    if model.geometry.vocab != vocab:
        raise InputError(
            f"--start: {start} has {model.geometry.vocab} tokens, the tokenizer of {bundle} {vocab}"
        )
    return model


def _vocabulary(bundle: Path) -> int:
    from workers.bundle import load_bundle

    family = load_bundle(bundle)
    if not family.has("tokenizer"):
        raise InputError(f"{bundle}: no tokenizer; run `specadapt train tokenizer` first")
    return len(family.tokenizer())


def run_of(given: RunFlags, hyper: "Hyper", out: Path, start: Path | None = None) -> "Run":
    """Return the training run that flags describe; `out` is where the model goes by default."""
    from training.trainer import Run

    sized = batching(hyper, given.batch_tokens, given.batches_per_step)
    return Run(
        folder=given.work,
        out=given.out or out,
        budget=budget(given.tokens, given.minutes, start, given.warmup_tokens),
        hyper=at_rate(sized, given.learning_rate),
        seed=given.seed,
        device=training_device(given.device, given.threads),
        report=say,
        patience=given.patience,
        eval_every=given.eval_every,
    )


def budget(
    tokens: int, minutes: float | None, start: Path | None, warmup_tokens: int | None
) -> "Budget":
    """Return a run's limits; the default warm-up is shorter for trained weights."""
    from training.trainer import Budget

    bounds = Budget(tokens=tokens, minutes=minutes if minutes is not None else float("inf"))
    if warmup_tokens is not None:
        return replace(bounds, warmup_tokens=warmup_tokens)
    return replace(bounds, warmup_tokens=bounds.warmup_tokens // 5) if start else bounds


def batching(hyper: "Hyper", batch_tokens: int, batches_per_step: int) -> "Hyper":
    """Return `hyper` with these batch sizes. Raises InputError for a size that does not pack."""
    if batch_tokens % 2048:
        raise InputError(f"--batch-tokens: {batch_tokens} is not a multiple of 2048")
    return replace(hyper, tokens_per_batch=batch_tokens, batches_per_step=batches_per_step)


def at_rate(hyper: "Hyper", learning_rate: float | None) -> "Hyper":
    """Return `hyper` with this peak rate for matrices, and other rates in proportion."""
    if learning_rate is None:
        return hyper
    share = learning_rate / hyper.matrix_lr
    return replace(hyper, matrix_lr=learning_rate, other_lr=hyper.other_lr * share)


def distillation_rows(generations: Path, corpus: Path, corpus_share: float) -> "TokenRows":
    """Return the target's answers, mixed with the corpus to `corpus_share` of the training."""
    from training.generations import generation_rows
    from training.tokens import answers_only, mixed

    if not generations.is_file():
        raise InputError(
            f"--generations: {generations} does not exist; run `specadapt train generate`"
        )
    if not 0 <= corpus_share < 1:
        raise InputError(f"--corpus-share: {corpus_share} must be at least 0 and below 1")
    rows = generation_rows(generations)
    if corpus_share == 0:
        return rows
    return mixed(rows, answers_only(read_split(corpus, "train")), corpus_share)


def read_split(corpus: Path, split: str) -> "TokenRows":
    """Return the token rows of "train" or "held". Raises InputError if the corpus is not built."""
    from training.tokens import TokenRows

    file = corpus / f"{split}.npz"
    if not file.is_file():
        raise InputError(f"{file}: not there; run `specadapt train tokenizer` first")
    return TokenRows.load(file)


def pick_rows(file: Path, count: int, seed: int) -> list["Row"]:
    """Return `count` rows of a corpus file, equal per domain, in an order that `seed` fixes."""
    import random

    from training.corpus import read_rows

    by_domain: dict[str, list[Row]] = defaultdict(list)
    for row in read_rows(file):
        by_domain[row["domain"]].append(row)
    share = count // len(by_domain)
    chosen = []
    for domain in sorted(by_domain):
        rows = by_domain[domain]
        random.Random(f"{seed} {domain}").shuffle(rows)
        chosen += rows[:share]
    random.Random(seed).shuffle(chosen)
    return chosen


def prompt_rows(files: Sequence[Path], count: int, seed: int) -> list["Row"]:
    """Return up to `count` prompts of these files, equal per domain, as rows with empty answers."""
    from ops.harness import prompts
    from training.corpus import Message, Row

    return [
        Row(
            id=prompt.id,
            domain=prompt.domain,
            source="prompts",
            messages=[
                *(Message(role=m["role"], content=m["content"]) for m in prompt.messages),
                Message(role="assistant", content=""),
            ],
        )
        for prompt in prompts.select(files, limit=count, seed=seed)
    ]
