"""`specadapt train card`: the model card of a trained family."""

from pathlib import Path
from typing import Annotated

import typer

from ops.cli import flags
from ops.cli.output import emit, say
from ops.train.flags import BundleDir, Corpus, Threads


def card(
    corpus: Corpus = Path("runs/corpus"),
    bundle: BundleDir = Path("bundles/demo"),
    per_domain: Annotated[int, typer.Option("--per-domain", min=1, help="held rows")] = 24,
    target_log: Annotated[
        Path, typer.Option("--target-log", metavar="FILE", help="log.jsonl of `train target`")
    ] = Path("runs/target/log.jsonl"),
    before: Annotated[
        Path | None,
        typer.Option(
            "--before", metavar="FILE", help="`train measure-draft`'s JSON of the undistilled draft"
        ),
    ] = None,
    readme: Annotated[
        Path | None,
        typer.Option("--readme", metavar="FILE", help="also write the card as Markdown"),
    ] = None,
    threads: Threads = None,
    json: flags.Json = None,
) -> None:
    """Measure the family on held rows: loops, stopping, draft acceptance, loss; with examples.

    Example: `specadapt train card --readme bundles/demo/README.md --json bundles/demo/card.json`
    """
    from ops.train.model_card import measure_family
    from ops.train.model_card_text import render
    from ops.train.setup import COMMANDS, default_threads, read_split, tokens_seen
    from schemas.json_files import read_json

    # Both files before the minutes that the measurement takes.
    tokens, undistilled = tokens_seen(target_log), read_json(before) if before else None
    figures = measure_family(
        bundle, corpus, read_split(corpus, "held"), per_domain, threads or default_threads(), say
    )
    figures["tokens_seen"] = tokens
    figures["before_distillation"] = undistilled
    if readme is not None:
        readme.write_text(render(figures, COMMANDS), encoding="utf-8")
    emit(figures, lambda: [f"measured {figures['rows']} held rows"], json)
