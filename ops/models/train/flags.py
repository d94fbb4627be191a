"""Flags that training commands share, as dataclasses that commands take whole."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from ops.harness import flags

Work = Annotated[
    Path,
    typer.Option(
        "--work",
        metavar="DIR",
        help="folder for checkpoints and logs; a later run resumes from it",
    ),
]
Corpus = Annotated[
    Path, typer.Option("--corpus", metavar="DIR", help="folder that `train tokenizer` wrote")
]
BundleDir = Annotated[
    Path, typer.Option("--bundle", metavar="DIR", help="folder of the model family")
]
Tokens = Annotated[int, typer.Option("--tokens", min=1, help="total number of training tokens")]
Minutes = Annotated[
    float | None,
    typer.Option("--minutes", min=0.1, help="time limit in minutes, learning-rate decay included"),
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda")]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, help="number of CPU threads  [default: all cores]")
]
Layers = Annotated[int, typer.Option("--layers", min=1, help="number of layers")]
Hidden = Annotated[int, typer.Option("--hidden", min=16, help="hidden size")]
Heads = Annotated[int, typer.Option("--heads", min=1, help="number of attention heads")]
KvHeads = Annotated[int, typer.Option("--kv-heads", min=1, help="number of key-value heads")]
Ffn = Annotated[int, typer.Option("--ffn", min=16, help="size of the feed-forward layer")]
Start = Annotated[
    Path | None,
    typer.Option(
        "--start",
        metavar="DIR",
        help="folder of weights to start from; they set the model's shape",
    ),
]
BatchTokens = Annotated[int, typer.Option("--batch-tokens", min=2048, help="tokens per batch")]
BatchesPerStep = Annotated[
    int,
    typer.Option(
        "--batches-per-step", min=1, help="batches whose gradients are accumulated per step"
    ),
]
LearningRate = Annotated[
    float | None,
    typer.Option(
        "--learning-rate",
        min=0.0,
        help="peak learning rate of matrices; other parameters scale with it  [default: for "
        "training from scratch]",
    ),
]
WarmupTokens = Annotated[
    int | None,
    typer.Option("--warmup-tokens", min=0, help="tokens of learning-rate warm-up"),
]
OutDir = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="DIR", help="folder of the trained model  [default: in the bundle]"
    ),
]
Patience = Annotated[
    int | None,
    typer.Option(
        "--patience",
        min=1,
        help="evaluations without improvement after which the learning rate drops, then training"
        " stops with the best weights  [default: no early stopping]",
    ),
]
EvalEvery = Annotated[
    int, typer.Option("--eval-every", min=1, metavar="STEPS", help="steps between evaluations")
]


@dataclass(frozen=True)
class RunFlags:
    """The flags of every training run."""

    work: Work
    tokens: Tokens
    batches_per_step: BatchesPerStep
    out: OutDir = None
    learning_rate: LearningRate = None
    warmup_tokens: WarmupTokens = None
    minutes: Minutes = None
    patience: Patience = None
    eval_every: EvalEvery = 200
    batch_tokens: BatchTokens = 4096
    device: Device = "auto"
    threads: Threads = None
    seed: flags.Seed = 0


@dataclass(frozen=True)
class Shape:
    """The flags that give a new model its shape."""

    hidden: Hidden
    layers: Layers
    heads: Heads
    ffn: Ffn
    kv_heads: KvHeads = 1


def with_flags(**defaults: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take dataclasses of flags: each field becomes an option of the command.

    defaults: by field, in place of the dataclass's own default.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters: list[inspect.Parameter] = []
        groups: dict[str, tuple[Any, list[str]]] = {}
        for parameter in inspect.signature(command).parameters.values():
            if not is_dataclass(parameter.annotation):
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
                continue
            own = fields(parameter.annotation)
            groups[parameter.name] = parameter.annotation, [field.name for field in own]
            for field in own:
                given = defaults.get(field.name, field.default)
                parameters.append(
                    inspect.Parameter(
                        field.name,
                        inspect.Parameter.KEYWORD_ONLY,
                        default=inspect.Parameter.empty if given is MISSING else given,
                        annotation=field.type,
                    )
                )

        @wraps(command)
        def run(**values: Any) -> None:
            made = {
                name: kind(**{field: values.pop(field) for field in own})
                for name, (kind, own) in groups.items()
            }
            command(**values, **made)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate
