"""`specadapt train target`: the model that drafters draft for."""

from pathlib import Path

import typer

from ops.harness import flags
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


def target(
    context: typer.Context,
    corpus: Corpus = Path("runs/corpus"),
    bundle: BundleDir = Path("bundles/demo"),
    work: Work = Path("runs/target"),
    out: OutDir = None,
    start: Start = None,
    learning_rate: LearningRate = None,
    warmup_tokens: WarmupTokens = None,
    tokens: Tokens = 40_000_000,
    minutes: Minutes = None,
    patience: Patience = None,
    eval_every: EvalEvery = 200,
    hidden: Hidden = 320,
    layers: Layers = 14,
    heads: Heads = 5,
    kv_heads: KvHeads = 1,
    ffn: Ffn = 832,
    batch_tokens: BatchTokens = 4096,
    batches_per_step: BatchesPerStep = 6,
    device: Device = "auto",
    threads: Threads = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Train the target on the corpus, or go on where the last run in --work stopped.

    Example: `specadapt train target --minutes 120`
    """
    from ops.models.train.setup import (
        Shape,
        at_rate,
        batching,
        budget,
        model,
        read_split,
        training_device,
    )
    from training.target import TARGET_HYPER, train_target
    from training.trainer import Run

    run = Run(
        folder=work,
        out=out or bundle / "target",
        budget=budget(tokens, minutes, start, warmup_tokens),
        hyper=at_rate(batching(TARGET_HYPER, batch_tokens, batches_per_step), learning_rate),
        seed=seed,
        device=training_device(device, threads),
        report=say,
        patience=patience,
        eval_every=eval_every,
    )
    shape = Shape(hidden, layers, heads, kv_heads, ffn)
    held = train_target(
        model(shape, start, bundle, seed, context),
        read_split(corpus, "train"),
        read_split(corpus, "held"),
        run,
    )
    emit_losses(held, json)
