"""What a trained family is worth: its card, its draft's acceptance, prompts to profile it with."""

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from ops import flags
from ops.output import emit, table
from ops.train_flags import BundleDir, Corpus, Threads


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
    from ops.model_card import measure_family
    from ops.model_card_text import render
    from ops.training import COMMANDS, default_threads, read_split, tokens_seen

    figures = measure_family(
        bundle, corpus, read_split(corpus, "held"), per_domain, threads or default_threads(), _line
    )
    figures["tokens_seen"] = tokens_seen(target_log)
    figures["before_distillation"] = json_module.loads(before.read_text()) if before else None
    if readme is not None:
        readme.write_text(render(figures, COMMANDS), encoding="utf-8")
    emit(figures, lambda: [f"measured {figures['rows']} held rows"], json)


def prompts_command(
    corpus: Corpus = Path("runs/corpus"),
    bundle: BundleDir = Path("bundles/demo"),
    out: Annotated[Path, typer.Option("--out", metavar="DIR")] = Path("runs/prompts"),
    per_domain: Annotated[
        int, typer.Option("--per-domain", min=1, help="prompts of the training rows")
    ] = 600,
    json: flags.Json = None,
) -> None:
    """Cut prompts out of the corpus: held.jsonl, all that may be profiled, and train.jsonl, to fit
    clusters on.

    Example: `specadapt train prompts`
    """
    from ops.corpus_prompts import write_prompts
    from workers.bundle import load_bundle

    family = load_bundle(bundle)
    counts = {
        split: write_prompts(family, corpus, split, most, out / f"{split}.jsonl")
        for split, most in (("held", None), ("train", per_domain))
    }
    emit(counts, lambda: [table("Prompts", ["split", "prompts"], list(counts.items()))], json)


def measure_draft_command(
    corpus: Corpus = Path("runs/corpus"),
    bundle: BundleDir = Path("bundles/demo"),
    per_domain: Annotated[int, typer.Option("--per-domain", min=1, help="held rows")] = 24,
    threads: Threads = None,
    json: flags.Json = None,
) -> None:
    """Measure the MAT of the bundle's present draft on held rows, at temperature 0.

    Example: `specadapt train measure-draft --json runs/draft-before.json`
    """
    from ops.model_card import measure_draft
    from ops.training import default_threads

    figures = measure_draft(bundle, corpus, per_domain, threads or default_threads())
    rows = [*figures["mat_by_domain"].items(), ("mean", figures["mat"])]
    emit(figures, lambda: [table("MAT at temperature 0", ["domain", "MAT"], rows)], json)


def _line(text: str) -> None:
    typer.echo(text, err=True)
