"""`specadapt train measure-draft|measure-heads`: acceptance length of drafters on held rows."""

from pathlib import Path
from typing import Annotated

import typer

from ops.harness import flags
from ops.harness.output import emit, table
from ops.models.train.flags import BundleDir, Corpus, Threads

DRAFT_METHOD = "draft_verify"
PerDomain = Annotated[
    int, typer.Option("--per-domain", min=1, help="number of held-out rows per domain")
]


def measure_draft(
    corpus: Corpus = Path("runs/corpus"),
    bundle: BundleDir = Path("bundles/demo"),
    per_domain: PerDomain = 24,
    threads: Threads = None,
    json: flags.Json = None,
) -> None:
    """Measure the tokens per target step of the bundle's draft model on held-out rows.

    Example: `specadapt train measure-draft --json runs/draft-before.json`
    """
    from ops.models.train.acceptance import measure_mat
    from ops.models.train.setup import default_threads

    threads = threads or default_threads()
    figures = measure_mat(bundle, corpus, [DRAFT_METHOD], per_domain, threads)[DRAFT_METHOD]
    rows = [*figures["mat_by_domain"].items(), ("mean", figures["mat"])]
    emit(figures, lambda: [table("MAT at temperature 0", ["domain", "MAT"], rows)], json)


def measure_heads(
    corpus: Corpus = Path("runs/corpus"),
    bundle: BundleDir = Path("bundles/demo"),
    methods: Annotated[
        str, typer.Option("--methods", metavar="A,B", help="methods to measure")
    ] = "draft_verify,medusa,eagle,eagle2,eagle3",
    per_domain: PerDomain = 24,
    threads: Threads = None,
    json: flags.Json = None,
) -> None:
    """Measure the tokens per target step of the bundle's heads on held-out rows.

    Example: `specadapt train measure-heads --methods medusa,eagle3`
    """
    from ops.harness.settings import names
    from ops.models.train.acceptance import measure_mat
    from ops.models.train.setup import default_threads

    figures = measure_mat(bundle, corpus, names(methods), per_domain, threads or default_threads())
    rows = [[name, own["mat"], *own["mat_by_domain"].values()] for name, own in figures.items()]
    domains = list(next(iter(figures.values()))["mat_by_domain"])
    emit(figures, lambda: [table("MAT at temperature 0", ["method", "mean", *domains], rows)], json)
