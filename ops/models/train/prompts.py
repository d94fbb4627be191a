"""`specadapt train prompts`: prompts out of the corpus, to profile and fit with."""

from pathlib import Path
from typing import Annotated

import typer

from ops.harness import flags
from ops.harness.output import emit, table
from ops.models.train.flags import BundleDir, Corpus


def prompts(
    corpus: Corpus = Path("runs/corpus"),
    bundle: BundleDir = Path("bundles/demo"),
    out: Annotated[Path, typer.Option("--out", metavar="DIR")] = Path("runs/prompts"),
    per_domain: Annotated[
        int, typer.Option("--per-domain", min=1, help="number of training prompts per domain")
    ] = 600,
    json: flags.Json = None,
) -> None:
    """Write prompts from the corpus: held.jsonl to profile, train.jsonl to fit clusters on.

    Example: `specadapt train prompts`
    """
    from ops.models.train.corpus_prompts import write_prompts
    from workers.bundle import load_bundle

    family = load_bundle(bundle)
    counts = {
        split: write_prompts(family, corpus, split, most, out / f"{split}.jsonl")
        for split, most in (("held", None), ("train", per_domain))
    }
    emit(counts, lambda: [table("Prompts", ["split", "prompts"], list(counts.items()))], json)
