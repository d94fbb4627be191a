"""`specadapt train medusa|eagle|eagle3`: heads for a target, from what it generates."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ops.harness import flags
from ops.harness.boundary import InputError
from ops.harness.output import emit, say, table
from ops.models.train.flags import (
    BatchesPerStep,
    BatchTokens,
    BundleDir,
    Corpus,
    Device,
    EvalEvery,
    LearningRate,
    Minutes,
    OutDir,
    Patience,
    Threads,
    Tokens,
    WarmupTokens,
)

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
"""How many tokens ahead a kind of head is trained, unless --positions says otherwise."""

VOCABULARY = {"medusa": 2048, "eagle3": 2048}
"""How many of the most frequent tokens a kind of head speaks, unless --vocabulary says otherwise;
EAGLE-1/2 speaks through the target's own LM head, all of it or so many of its rows."""

HELD_EVERY = 20
"""Without a corpus every so many-th answer is measured on and not learned from."""

WARMUP_TOKENS = 100_000


def train_head_command(kind: str) -> Callable[..., None]:
    """The command that trains heads of a kind."""

    def command(
        context: typer.Context,
        corpus: Corpus = Path("runs/corpus"),
        bundle: BundleDir = Path("bundles/demo"),
        target: Annotated[
            Path | None,
            typer.Option("--target", metavar="DIR", help="the target  [default: the bundle's]"),
        ] = None,
        work: Annotated[
            Path | None,
            typer.Option(
                "--work",
                metavar="DIR",
                help=f"checkpoints, features and log; resumed from  [default: runs/{kind}]",
            ),
        ] = None,
        out: OutDir = None,
        generations: Annotated[
            Path,
            typer.Option("--generations", metavar="FILE", help="answers of the target"),
        ] = Path("runs/generations.jsonl"),
        corpus_share: Annotated[
            float,
            typer.Option(
                "--corpus-share",
                help="share of the learning that is the corpus's; 0 needs no corpus",
            ),
        ] = 0.6,
        start: Annotated[
            Path | None,
            typer.Option(
                "--start",
                metavar="DIR",
                help="a head to go on from; its vocabulary and shape stay",
            ),
        ] = None,
        positions: Annotated[
            int, typer.Option("--positions", min=1, max=8, help="tokens ahead that are trained")
        ] = POSITIONS[kind],
        vocabulary: Annotated[
            int,
            typer.Option(
                "--vocabulary", min=0, help="most frequent tokens that the head speaks; 0: all"
            ),
        ] = VOCABULARY.get(kind, 0),
        length: Annotated[
            int, typer.Option("--length", min=16, help="tokens of a row; longer text is cut")
        ] = 512,
        cache_gb: Annotated[
            float, typer.Option("--cache-gb", min=0, help="how much of the target's states is kept")
        ] = 10.0,
        features: Annotated[
            Path | None,
            typer.Option(
                "--features",
                metavar="DIR",
                help="where they are kept; another head's folder saves computing them again  "
                "[default: <work>/features]",
            ),
        ] = None,
        learning_rate: LearningRate = None,
        warmup_tokens: WarmupTokens = None,
        tokens: Tokens = 20_000_000,
        minutes: Minutes = None,
        patience: Patience = None,
        eval_every: EvalEvery = 200,
        batch_tokens: BatchTokens = 4096,
        batches_per_step: BatchesPerStep = 1,
        device: Device = "auto",
        threads: Threads = None,
        seed: flags.Seed = 0,
        json: flags.Json = None,
    ) -> None:
        import torch

        from ops.models.train.setup import at_rate, batching, training_device
        from training.heads.stored import StoredHead
        from training.heads.teacher import Teacher
        from training.heads.train import HEAD_HYPER, Plan, train_head
        from training.trainer import Budget, Run
        from workers.bundle import load_bundle, name_part

        if batch_tokens % length:
            raise InputError(f"--batch-tokens: {batch_tokens} is not a multiple of --length")
        work = work or Path("runs") / kind
        run = Run(
            folder=work,
            out=out or bundle / kind,
            budget=Budget(
                tokens,
                minutes or float("inf"),
                WARMUP_TOKENS if warmup_tokens is None else warmup_tokens,
            ),
            hyper=at_rate(batching(HEAD_HYPER, batch_tokens, batches_per_step), learning_rate),
            seed=seed,
            device=training_device(device, threads),
            report=say,
            patience=patience,
            eval_every=eval_every,
        )
        begun = None if start is None else StoredHead(start, kind)
        folder = target or load_bundle(bundle).part("target")
        rows, held = _data(generations, corpus, corpus_share)
        teacher = Teacher.load(folder, run.device, run.hyper.compile)
        torch.manual_seed(seed)
        if begun is None:
            words = _vocabulary(rows, vocabulary, len(teacher.lm_head))
            head = _head(kind, teacher, words, positions)
        else:
            begun.refuse_other_target(teacher)
            head, positions = _started(begun, teacher, context)
        states = features or work / "features"
        plan = Plan(positions, states, length, cache_gb=cache_gb, start=begun)
        figures = train_head(head, teacher, rows, held, run, plan)
        if out is None:
            name_part(bundle, kind)
        _emit(figures, json)

    command.__doc__ = f"""Train {TITLES[kind]} for a target, on the target's own answers and the
    corpus's.

    Example: `specadapt train generate && specadapt train {kind} --minutes 50`
    """
    return command


def _data(generations: Path, corpus: Path, share: float) -> "tuple[TokenRows, TokenRows]":
    """Rows to learn from and rows to measure on: the corpus's held ones, or, where no corpus is
    learned, some of the generations."""
    from numpy import arange, flatnonzero

    from ops.models.train.setup import distillation_rows, read_split
    from training.heads.packing import picked
    from training.tokens import answers_only

    rows = distillation_rows(generations, corpus, share)
    if share:
        return rows, answers_only(read_split(corpus, "held"))
    held = arange(len(rows)) % HELD_EVERY == 0
    return picked(rows, flatnonzero(~held)), picked(rows, flatnonzero(held))


def _head(
    kind: str,
    teacher: "Teacher",
    words: "Tensor | None",
    positions: int,
    begun: "StoredHead | None" = None,
) -> "Head":
    from training.heads.eagle import Eagle
    from training.heads.eagle3 import Eagle3
    from training.heads.medusa import Medusa

    if kind == "eagle":
        return Eagle(teacher, words)
    if kind == "eagle3":
        return Eagle3(teacher, words, begun.captures(teacher.layers) if begun else None)
    return Medusa(teacher, words, positions, begun.depth if begun else 1)


def _started(begun: "StoredHead", teacher: "Teacher", context: typer.Context) -> "tuple[Head, int]":
    """A head in the shape of the one to go on from, and how many tokens ahead it is trained;
    raises InputError for flags that say otherwise."""
    words, given = begun.vocabulary, context.params
    spoken, target = len(teacher.lm_head) if words is None else len(words), len(teacher.lm_head)
    if _is_given(context, "vocabulary") and (given["vocabulary"] or target) != spoken:
        raise InputError(
            f"--vocabulary: the head in {begun.folder} speaks {spoken} tokens, which stay; leave "
            "the flag out"
        )
    positions = given["positions"]
    if begun.kind == "medusa":
        if _is_given(context, "positions") and positions != begun.positions:
            raise InputError(
                f"--positions: {begun.folder} has {begun.positions} heads; leave the flag out"
            )
        positions = begun.positions
    if words is not None and not 0 <= int(words.min()) <= int(words.max()) < target:
        raise InputError(
            f"--start: {begun.folder}: its vocabulary maps to tokens {int(words.min())} .. "
            f"{int(words.max())}, the target has {target}"
        )
    return _head(begun.kind, teacher, words, positions, begun), positions


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
