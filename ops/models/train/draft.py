"""`specadapt train draft`: a draft model, on the corpus or on the target's answers."""

from pathlib import Path
from typing import Annotated

import typer

from ops.harness import flags
from ops.harness.boundary import InputError
from ops.harness.output import say
from ops.models.train.flags import (
    BatchesPerStep,
    BatchTokens,
    BundleDir,
    Corpus,
    Device,
    EvalEvery,
    Ffn,
    Heads,
    Hidden,
    KvHeads,
    Layers,
    LearningRate,
    Minutes,
    OutDir,
    Patience,
    Start,
    Threads,
    Tokens,
    WarmupTokens,
    Work,
)
from ops.models.train.output import emit_losses


def draft(
    context: typer.Context,
    corpus: Corpus = Path("runs/corpus"),
    bundle: BundleDir = Path("bundles/demo"),
    work: Work = Path("runs/draft"),
    out: OutDir = None,
    generations: Annotated[
        Path | None,
        typer.Option("--generations", metavar="FILE", help="distil on these answers of the target"),
    ] = None,
    corpus_share: Annotated[
        float,
        typer.Option(
            "--corpus-share", help="with --generations: share of the learning that is the corpus's"
        ),
    ] = 0.0,
    start: Start = None,
    learning_rate: LearningRate = None,
    warmup_tokens: WarmupTokens = None,
    tokens: Tokens = 8_000_000,
    minutes: Minutes = None,
    patience: Patience = None,
    eval_every: EvalEvery = 200,
    hidden: Hidden = 192,
    layers: Layers = 2,
    heads: Heads = 3,
    kv_heads: KvHeads = 1,
    ffn: Ffn = 512,
    batch_tokens: BatchTokens = 4096,
    batches_per_step: BatchesPerStep = 2,
    device: Device = "auto",
    threads: Threads = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Train the draft model on the corpus, or distil it on the target's own answers.

    Example: `specadapt train draft && specadapt train draft --generations runs/generations.jsonl
    --corpus-share 0.5 --start bundles/demo/draft --work runs/draft-distilled`
    """
    from ops.models.train.setup import (
        Shape,
        at_rate,
        batching,
        budget,
        distillation_rows,
        model,
        read_split,
        training_device,
    )
    from training.draft import DRAFT_HYPER, train_draft
    from training.model import Llama
    from training.trainer import Run
    from workers.bundle import load_bundle

    if corpus_share and not generations:
        raise InputError("--corpus-share: needs --generations; without it all is the corpus")
    run = Run(
        folder=work,
        out=out or bundle / "draft",
        budget=budget(tokens, minutes, start, warmup_tokens),
        hyper=at_rate(batching(DRAFT_HYPER, batch_tokens, batches_per_step), learning_rate),
        seed=seed,
        device=training_device(device, threads),
        report=say,
        patience=patience,
        eval_every=eval_every,
    )
    figures = train_draft(
        model(Shape(hidden, layers, heads, kv_heads, ffn), start, bundle, seed, context),
        distillation_rows(generations, corpus, corpus_share)
        if generations
        else read_split(corpus, "train"),
        read_split(corpus, "held"),
        run,
        teacher=Llama.load(load_bundle(bundle).part("target")) if generations else None,
    )
    emit_losses(figures.loss, json, figures.agreement)
