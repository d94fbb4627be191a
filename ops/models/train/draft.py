"""`specadapt train draft`: train a draft model."""

from pathlib import Path
from typing import Annotated

import typer

from ops.harness import flags
from ops.harness.boundary import InputError
from ops.models.train.flags import BundleDir, Corpus, RunFlags, Shape, Start, with_flags
from ops.models.train.output import emit_losses


@with_flags(
    work=Path("runs/draft"),
    tokens=8_000_000,
    batches_per_step=2,
    hidden=192,
    layers=2,
    heads=3,
    ffn=512,
)
def draft(
    context: typer.Context,
    shape: Shape,
    training: RunFlags,
    corpus: Corpus = Path("runs/corpus"),
    bundle: BundleDir = Path("bundles/demo"),
    generations: Annotated[
        Path | None,
        typer.Option("--generations", metavar="FILE", help="answers of the target to distil on"),
    ] = None,
    corpus_share: Annotated[
        float,
        typer.Option(
            "--corpus-share", help="with --generations, share of the training that uses the corpus"
        ),
    ] = 0.0,
    start: Start = None,
    json: flags.Json = None,
) -> None:
    """Train a draft model on the corpus, or distil it on the target's own answers.

    Example: `specadapt train draft && specadapt train draft --generations runs/generations.jsonl
    --corpus-share 0.5 --start bundles/demo/draft --work runs/draft-distilled`
    """
    from ops.models.train.setup import distillation_rows, model, read_split, run_of
    from training.draft import DRAFT_HYPER, train_draft
    from training.model import Llama
    from workers.bundle import load_bundle

    if corpus_share and not generations:
        raise InputError("--corpus-share needs --generations")
    run = run_of(training, DRAFT_HYPER, bundle / "draft", start)
    figures = train_draft(
        model(shape, start, bundle, training.seed, context),
        distillation_rows(generations, corpus, corpus_share)
        if generations
        else read_split(corpus, "train"),
        read_split(corpus, "held"),
        run,
        teacher=Llama.load(load_bundle(bundle).part("target")) if generations else None,
    )
    emit_losses(figures.loss, json, figures.agreement)
