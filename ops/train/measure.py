"""`specadapt train measure-draft|measure-heads`: what drafters are worth on held rows."""

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from ops.cli import flags
from ops.cli.boundary import InputError
from ops.cli.output import emit, table
from ops.train.flags import BundleDir, Corpus, Threads


def measure_draft(
    corpus: Corpus = Path("runs/corpus"),
    bundle: BundleDir = Path("bundles/demo"),
    per_domain: Annotated[int, typer.Option("--per-domain", min=1, help="held rows")] = 24,
    threads: Threads = None,
    json: flags.Json = None,
) -> None:
    """Measure the MAT of the bundle's present draft on held rows, at temperature 0.

    Example: `specadapt train measure-draft --json runs/draft-before.json`
    """
    from ops.train.model_card import DRAFT_METHOD, measure_mat
    from ops.train.setup import default_threads

    threads = threads or default_threads()
    figures = measure_mat(bundle, corpus, [DRAFT_METHOD], per_domain, threads)[DRAFT_METHOD]
    rows = [*figures["mat_by_domain"].items(), ("mean", figures["mat"])]
    emit(figures, lambda: [table("MAT at temperature 0", ["domain", "MAT"], rows)], json)


def measure_heads(
    corpus: Corpus = Path("runs/corpus"),
    bundle: BundleDir = Path("bundles/demo"),
    methods: Annotated[
        str, typer.Option("--methods", metavar="A,B", help="each as it is served")
    ] = "draft_verify,medusa,eagle,eagle2,eagle3",
    per_domain: Annotated[int, typer.Option("--per-domain", min=1, help="held rows")] = 24,
    threads: Threads = None,
    json: flags.Json = None,
) -> None:
    """Measure the MAT of the bundle's heads on held rows, at temperature 0, and write it into its
    card (card.json and README.md).

    Example: `specadapt train measure-heads`
    """
    from ops.cli.settings import names
    from ops.train.model_card import measure_mat
    from ops.train.model_card_text import render
    from ops.train.setup import COMMANDS, default_threads
    from schemas.json_files import read_json

    file = bundle / "card.json"
    if not file.is_file():
        raise InputError(f"{file}: not there; run `specadapt train card` first")
    card = read_json(file)
    chosen = names(methods)
    figures = measure_mat(bundle, corpus, chosen, per_domain, threads or default_threads())
    card |= {"heads": figures}
    file.write_text(json_module.dumps(card, indent=2) + "\n", encoding="utf-8")
    (bundle / "README.md").write_text(render(card, COMMANDS), encoding="utf-8")
    rows = [[name, own["mat"], *own["mat_by_domain"].values()] for name, own in figures.items()]
    domains = list(next(iter(figures.values()))["mat_by_domain"])
    emit(figures, lambda: [table("MAT at temperature 0", ["method", "mean", *domains], rows)], json)
