"""`specadapt train medusa|eagle|eagle3`: heads for a target, from what it generates."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ops.harness import flags
from ops.harness.boundary import InputError
from ops.harness.output import emit, table
from ops.models.train.flags import BundleDir, Corpus, RunFlags, with_flags

if TYPE_CHECKING:
    from torch import Tensor

    from training.heads.accuracy import HeadFigures
    from training.heads.head import Head
    from training.heads.stored import StoredHead
    from training.heads.teacher import Teacher
    from training.tokens import TokenRows

TITLES = {
    "medusa": "Medusa heads",
    "eagle": "the head of EAGLE and EAGLE-2",
    "eagle3": "the head of EAGLE-3",
}

POSITIONS = {"medusa": 4, "eagle": 3, "eagle3": 4}
"""Default number of tokens ahead by kind of head."""

VOCABULARY = {"medusa": 2048, "eagle3": 2048}
"""Default vocabulary size by kind of head. EAGLE-1/2 uses the target's own LM head."""

HELD_EVERY = 20
"""Without a corpus, every n-th answer is held out."""


def train_head_command(kind: str) -> Callable[..., None]:
    """Return the command that trains heads of a kind."""

    @with_flags(
        work=Path("runs") / kind,
        tokens=20_000_000,
        batches_per_step=1,
        warmup_tokens=100_000,
    )
    def command(
        context: typer.Context,
        training: RunFlags,
        corpus: Corpus = Path("runs/corpus"),
        bundle: BundleDir = Path("bundles/demo"),
        target: Annotated[
            Path | None,
            typer.Option(
                "--target", metavar="DIR", help="folder of the target  [default: the bundle's]"
            ),
        ] = None,
        generations: Annotated[
            Path,
            typer.Option("--generations", metavar="FILE", help="answers of the target"),
        ] = Path("runs/generations.jsonl"),
        corpus_share: Annotated[
            float,
            typer.Option(
                "--corpus-share",
                help="share of the training that uses the corpus; 0 needs no corpus",
            ),
        ] = 0.6,
        start: Annotated[
            Path | None,
            typer.Option(
                "--start",
                metavar="DIR",
                help="folder of a head to continue from; it sets vocabulary and shape",
            ),
        ] = None,
        positions: Annotated[
            int,
            typer.Option("--positions", min=1, max=8, help="number of tokens ahead to train for"),
        ] = POSITIONS[kind],
        vocabulary: Annotated[
            int,
            typer.Option(
                "--vocabulary",
                min=0,
                help="size of the head's vocabulary, most frequent tokens first; 0 for all",
            ),
        ] = VOCABULARY.get(kind, 0),
        length: Annotated[
            int, typer.Option("--length", min=16, help="tokens per row; longer text is cut")
        ] = 512,
        cache_gb: Annotated[
            float,
            typer.Option(
                "--cache-gb", min=0, help="GB of the target's hidden states to keep on disk"
            ),
        ] = 10.0,
        features: Annotated[
            Path | None,
            typer.Option(
                "--features",
                metavar="DIR",
                help="folder of the hidden states; heads can share it  [default: <work>/features]",
            ),
        ] = None,
        json: flags.Json = None,
    ) -> None:
        import torch

        from ops.models.train.setup import run_of
        from training.heads.kinds import new_head
        from training.heads.stored import StoredHead
        from training.heads.teacher import Teacher
        from training.heads.train import HEAD_HYPER, Plan, train_head
        from workers.bundle import load_bundle, name_part

        if training.batch_tokens % length:
            raise InputError(
                f"--batch-tokens: {training.batch_tokens} is not a multiple of --length"
            )
        run = run_of(training, HEAD_HYPER, bundle / kind)
        begun = None if start is None else StoredHead(start, kind)
        folder = target or load_bundle(bundle).part("target")
        rows, held = _data(generations, corpus, corpus_share)
        teacher = Teacher.load(folder, run.device, run.hyper.compile)
        torch.manual_seed(training.seed)
        if begun is None:
            words = _vocabulary(rows, vocabulary, len(teacher.lm_head))
            head = new_head(kind, teacher, words, positions)
        else:
            begun.refuse_other_target(teacher)
            head, positions = _started(begun, teacher, context)
        states = features or training.work / "features"
        plan = Plan(positions, states, length, cache_gb=cache_gb, start=begun)
        figures = train_head(head, teacher, rows, held, run, plan)
        if training.out is None:
            name_part(bundle, kind)
        _emit(figures, json)

    command.__doc__ = f"""Train {TITLES[kind]} for a target, on the target's own answers and the
    corpus's.

    Example: `specadapt train generate && specadapt train {kind} --minutes 50`
    """
    return command


def _data(generations: Path, corpus: Path, share: float) -> "tuple[TokenRows, TokenRows]":
    """Return the rows to train on and the rows to evaluate on.

    The latter are the corpus's held-out rows, or some of the generations if no corpus is used.
    """
    from numpy import arange, flatnonzero

    from ops.models.train.setup import distillation_rows, read_split
    from training.heads.packing import picked
    from training.tokens import answers_only

    rows = distillation_rows(generations, corpus, share)
    if share:
        return rows, answers_only(read_split(corpus, "held"))
    held = arange(len(rows)) % HELD_EVERY == 0
    return picked(rows, flatnonzero(~held)), picked(rows, flatnonzero(held))


def _started(begun: "StoredHead", teacher: "Teacher", context: typer.Context) -> "tuple[Head, int]":
    """A head in the shape of the one to go on from, and how many tokens ahead it is trained;
    raises InputError for flags that say otherwise."""
    from training.heads.kinds import continued_head

    words, given = begun.vocabulary, context.params
    spoken, target = len(teacher.lm_head) if words is None else len(words), len(teacher.lm_head)
    if _is_given(context, "vocabulary") and (given["vocabulary"] or target) != spoken:
        raise InputError(
            f"--vocabulary: the head in {begun.folder} has a fixed vocabulary of {spoken} tokens; "
            "leave the flag out"
        )
    positions = given["positions"]
    if begun.kind == "medusa":
        if _is_given(context, "positions") and positions != begun.positions:
            raise InputError(
                f"--positions: {begun.folder} has {begun.positions} heads; leave the flag out"
            )
        positions = begun.positions
    return continued_head(begun, teacher), positions


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _vocabulary(rows: "TokenRows", count: int, target: int) -> "Tensor | None":
    """The `count` most frequent answer tokens; None where that is all of them."""
    import torch

    from training.heads.packing import frequent_tokens

    if count in (0, target):
        return None
    if count > target:
        raise InputError(f"--vocabulary: {count} is more than the target's {target} tokens")
    return torch.from_numpy(frequent_tokens(rows, count, target))


def _emit(figures: "HeadFigures", json: Path | None) -> None:
    domains = [d for d in figures.loss if d != "mean"]
    written = {
        "loss": figures.loss["mean"],
        "val_loss_by_domain": {d: figures.loss[d] for d in domains},
        "acceptance_by_domain": figures.acceptance,
        "chain_by_domain": figures.chain,
        "accuracy_by_position": figures.accuracy,
    }
    by_domain = [
        [d, figures.loss[d], figures.acceptance[d], figures.chain[d]] for d in figures.loss
    ]
    by_position = [[j + 1, *shares] for j, shares in enumerate(figures.accuracy)]
    best = [f"top-{k + 1}" for k in range(len(figures.accuracy[0]))]
    emit(
        written,
        lambda: [
            table(
                "Held rows",
                ["domain", "nats a token", "same favourite", "greedy chain"],
                by_domain,
            ),
            table("The target's favourite among the head's", ["position", *best], by_position),
        ],
        json,
    )
