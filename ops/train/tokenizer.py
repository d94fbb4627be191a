"""`specadapt train tokenizer`: the corpus, its tokenizer, and its rows as token ids."""

from pathlib import Path
from typing import Annotated

import typer

from ops.cli import flags
from ops.cli.output import emit, table
from ops.train.flags import BundleDir, Corpus


def tokenizer(
    shared: Annotated[
        Path, typer.Option("--shared", metavar="DIR", help="folder that holds data/")
    ] = Path("../shared"),
    corpus: Corpus = Path("runs/corpus"),
    bundle: BundleDir = Path("bundles/demo"),
    keep: Annotated[
        bool, typer.Option("--keep", help="keep the bundle's tokenizer; only build the corpus")
    ] = False,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Build the corpus, train its tokenizer, and write the rows as token ids.

    Example: `specadapt train tokenizer --keep`
    """
    from transformers import AutoTokenizer

    from training.demo_corpus import build_corpus, read_rows, repeats
    from training.tokenizer import train_tokenizer
    from training.tokens import tokenise
    from workers.bundle import load_bundle

    stats = build_corpus(shared, corpus, seed)
    folder = load_bundle(bundle).part("tokenizer") if keep else bundle / "tokenizer"
    size = None if keep else train_tokenizer(corpus, folder, seed=seed)
    fast = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    counts = {}
    for split in ("train", "held"):
        rows = tokenise(list(read_rows(corpus / f"{split}.jsonl")), fast, repeats)
        rows.save(corpus / f"{split}.npz")
        counts[split] = {"rows": len(rows), "tokens": len(rows.tokens)}
    figures = {"vocabulary": size or len(fast), **counts, "corpus": stats}
    emit(
        figures,
        lambda: [
            table(
                "Corpus", ["split", "rows", "tokens"], [[k, *v.values()] for k, v in counts.items()]
            )
        ],
        json,
    )
