"""`specadapt train target`: train the model that drafters draft for."""

from pathlib import Path

import typer

from ops.harness import flags
from ops.models.train.flags import BundleDir, Corpus, RunFlags, Shape, Start, with_flags
from ops.models.train.output import emit_losses


@with_flags(
    work=Path("runs/target"),
    tokens=40_000_000,
    batches_per_step=6,
    hidden=320,
    layers=14,
    heads=5,
    ffn=832,
)
def target(
    context: typer.Context,
    shape: Shape,
    training: RunFlags,
    corpus: Corpus = Path("runs/corpus"),
    bundle: BundleDir = Path("bundles/demo"),
    start: Start = None,
    json: flags.Json = None,
) -> None:
    """Train a target on the corpus; resume the last run in --work.

    Example: `specadapt train target --minutes 120`
    """
    from ops.models.train.setup import model, read_split, run_of
    from training.target import TARGET_HYPER, train_target

    held = train_target(
        model(shape, start, bundle, training.seed, context),
        read_split(corpus, "train"),
        read_split(corpus, "held"),
        run_of(training, TARGET_HYPER, bundle / "target", start),
    )
    emit_losses(held, json)
