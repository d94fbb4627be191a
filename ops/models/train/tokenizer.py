"""`specadapt train tokenizer`: a corpus, its tokenizer, and its rows as token ids."""

from pathlib import Path
from typing import Annotated

import typer

from ops.harness import flags
from ops.harness.output import emit, table
from ops.models.train.flags import BundleDir, Corpus


def tokenizer(
    data: Annotated[
        list[Path],
        typer.Option(
            "--data",
            metavar="FILE",
            help="JSON Lines with `prompt` and `response`, `messages` or `turns`; repeatable",
        ),
    ],
    corpus: Corpus = Path("runs/corpus"),
    bundle: BundleDir = Path("bundles/demo"),
    keep: Annotated[
        bool, typer.Option("--keep", help="keep the bundle's tokenizer and only build the corpus")
    ] = False,
    vocabulary: Annotated[
        int, typer.Option("--vocabulary", min=280, help="vocabulary size of the new tokenizer")
    ] = 4096,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Build a corpus from conversations and train a tokenizer on it.

    Splits the corpus by source text and writes its rows as token ids.

    Example: `specadapt train tokenizer --data chats.jsonl --data code.jsonl --keep`
    """
    from transformers import AutoTokenizer

    from training.corpus import build_corpus, read_rows
    from training.tokenizer import train_tokenizer
    from training.tokens import tokenise
    from workers.bundle import load_bundle

    stats = build_corpus(data, corpus, seed)
    folder = load_bundle(bundle).part("tokenizer") if keep else bundle / "tokenizer"
    size = None if keep else train_tokenizer(corpus, folder, vocab_size=vocabulary, seed=seed)
    fast = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    counts = {}
    for split in ("train", "held"):
        rows = tokenise(list(read_rows(corpus / f"{split}.jsonl")), fast)
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
