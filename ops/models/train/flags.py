"""The flags that the training commands share."""

from pathlib import Path
from typing import Annotated

import typer

Work = Annotated[
    Path, typer.Option("--work", metavar="DIR", help="checkpoints and log; resumed from")
]
Corpus = Annotated[
    Path, typer.Option("--corpus", metavar="DIR", help="what `train tokenizer` wrote")
]
BundleDir = Annotated[Path, typer.Option("--bundle", metavar="DIR", help="model family")]
Tokens = Annotated[int, typer.Option("--tokens", min=1, help="tokens to see in all")]
Minutes = Annotated[
    float | None, typer.Option("--minutes", min=0.1, help="end after this long, decay included")
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda")]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="[default: all cores]")]
Layers = Annotated[int, typer.Option("--layers", min=1)]
Hidden = Annotated[int, typer.Option("--hidden", min=16)]
Heads = Annotated[int, typer.Option("--heads", min=1)]
KvHeads = Annotated[int, typer.Option("--kv-heads", min=1)]
Ffn = Annotated[int, typer.Option("--ffn", min=16)]
Start = Annotated[
    Path | None,
    typer.Option("--start", metavar="DIR", help="weights to start from, and so the model's shape"),
]
BatchTokens = Annotated[int, typer.Option("--batch-tokens", min=2048, help="tokens in one pass")]
BatchesPerStep = Annotated[
    int, typer.Option("--batches-per-step", min=1, help="their gradients are added up")
]
LearningRate = Annotated[
    float | None,
    typer.Option(
        "--learning-rate",
        min=0.0,
        help="peak for matrices; that of everything else stays in proportion  "
        "[default: made for training from nothing]",
    ),
]
WarmupTokens = Annotated[
    int | None,
    typer.Option("--warmup-tokens", min=0, help="tokens until the learning rate is at its peak"),
]
OutDir = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="where the model goes  [default: the bundle's]"),
]
Patience = Annotated[
    int | None,
    typer.Option(
        "--patience",
        min=1,
        help="evaluations without a lower held loss after which the learning rate falls, and then "
        "the run ends with its best weights  [default: no early stop]",
    ),
]
EvalEvery = Annotated[
    int, typer.Option("--eval-every", min=1, metavar="STEPS", help="steps between evaluations")
]
