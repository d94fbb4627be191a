"""`specadapt train`: tokenizer, target and drafters, for the demo family or a user's own."""

from pathlib import Path
from typing import Annotated

import typer

from ops.cli import flags
from ops.cli.boundary import InputError, show_help
from ops.cli.output import emit, table
from ops.train.flags import (
    BatchesPerStep,
    BatchTokens,
    BundleDir,
    Corpus,
    Device,
    EvalEvery,
    Ffn,
    Heads,
    Hidden,
    KvHeads,
    Layers,
    Minutes,
    OutDir,
    Patience,
    Start,
    Threads,
    Tokens,
    Work,
)
from ops.train.heads import POSITIONS, train_head_command
from ops.train.measure import (
    card,
    measure_draft_command,
    measure_heads_command,
    prompts_command,
)

train = typer.Typer(
    help="Train a tokenizer, a target, and drafters for it.",
    callback=show_help,
    invoke_without_command=True,
)

train.command("card")(card)
train.command("prompts")(prompts_command)
train.command("measure-draft")(measure_draft_command)
train.command("measure-heads")(measure_heads_command)
for kind in POSITIONS:
    train.command(kind)(train_head_command(kind))


@train.command("tokenizer")
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

    stats = build_corpus(shared, corpus, seed)
    folder = bundle / "tokenizer"
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


@train.command("target")
def target(
    context: typer.Context,
    corpus: Corpus = Path("runs/corpus"),
    bundle: BundleDir = Path("bundles/demo"),
    work: Work = Path("runs/target"),
    out: OutDir = None,
    start: Start = None,
    tokens: Tokens = 40_000_000,
    minutes: Minutes = None,
    patience: Patience = None,
    eval_every: EvalEvery = 200,
    hidden: Hidden = 320,
    layers: Layers = 14,
    heads: Heads = 5,
    kv_heads: KvHeads = 1,
    ffn: Ffn = 832,
    batch_tokens: BatchTokens = 4096,
    batches_per_step: BatchesPerStep = 6,
    device: Device = "auto",
    threads: Threads = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Train the target on the corpus, or go on where the last run in --work stopped.

    Example: `specadapt train target --minutes 120`
    """
    from ops.train.setup import Shape, batching, budget, model, read_split, training_device
    from training.target import TARGET_HYPER, train_target
    from training.trainer import Run

    run = Run(
        folder=work,
        out=out or bundle / "target",
        budget=budget(tokens, minutes, start),
        hyper=batching(TARGET_HYPER, batch_tokens, batches_per_step),
        seed=seed,
        device=training_device(device, threads),
        report=_line,
        patience=patience,
        eval_every=eval_every,
    )
    shape = Shape(hidden, layers, heads, kv_heads, ffn)
    held = train_target(
        model(shape, start, bundle, seed, context),
        read_split(corpus, "train"),
        read_split(corpus, "held"),
        run,
    )
    _emit_losses(held, json)


@train.command("generate")
def generate(
    corpus: Corpus = Path("runs/corpus"),
    bundle: BundleDir = Path("bundles/demo"),
    out: Annotated[Path, typer.Option("--out", metavar="FILE")] = Path("runs/generations.jsonl"),
    prompts: Annotated[
        list[Path] | None,
        typer.Option(
            "--prompts", metavar="FILE", help="JSON Lines, may be repeated  [default: the corpus's]"
        ),
    ] = None,
    rows: Annotated[int, typer.Option("--rows", min=1, help="prompts, equal per domain")] = 12_000,
    batch: Annotated[int, typer.Option("--batch", min=1, help="sequences in one step")] = 32,
    max_tokens: flags.MaxTokens = 160,
    threads: Threads = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Let the target answer prompts, the corpus's or yours: what drafters are distilled on.

    Example: `specadapt train generate --rows 12000`
    """
    from ops.train.setup import default_threads, pick_rows, prompt_rows
    from schemas import EngineConfig
    from training.generations import generate_answers
    from workers.bundle import load_bundle

    context = 768
    config = EngineConfig(
        threads=threads or default_threads(),
        max_batch=batch,
        kv_slots=batch * context,
        max_context=context,
        max_waiting=rows,
    )
    chosen = (
        prompt_rows(prompts, rows, seed)
        if prompts
        else pick_rows(corpus / "train.jsonl", rows, seed)
    )
    count = generate_answers(
        load_bundle(bundle), chosen, out, config, max_tokens=max_tokens, seed=seed, report=_line
    )
    emit({"answers": count, "file": str(out)}, lambda: [f"{count} answers in {out}"], json)


@train.command("draft")
def draft(
    context: typer.Context,
    corpus: Corpus = Path("runs/corpus"),
    bundle: BundleDir = Path("bundles/demo"),
    work: Work = Path("runs/draft"),
    out: OutDir = None,
    generations: Annotated[
        Path | None,
        typer.Option("--generations", metavar="FILE", help="distil on these answers of the target"),
    ] = None,
    corpus_share: Annotated[
        float,
        typer.Option(
            "--corpus-share", help="with --generations: share of the learning that is the corpus's"
        ),
    ] = 0.0,
    start: Start = None,
    tokens: Tokens = 8_000_000,
    minutes: Minutes = None,
    patience: Patience = None,
    eval_every: EvalEvery = 200,
    hidden: Hidden = 192,
    layers: Layers = 2,
    heads: Heads = 3,
    kv_heads: KvHeads = 1,
    ffn: Ffn = 512,
    batch_tokens: BatchTokens = 4096,
    batches_per_step: BatchesPerStep = 2,
    device: Device = "auto",
    threads: Threads = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Train the draft model on the corpus, or distil it on the target's own answers.

    Example: `specadapt train draft && specadapt train draft --generations runs/generations.jsonl
    --corpus-share 0.5 --start bundles/demo/draft --work runs/draft-distilled`
    """
    from ops.train.setup import (
        Shape,
        batching,
        budget,
        distillation_rows,
        model,
        read_split,
        training_device,
    )
    from training.draft import DRAFT_HYPER, train_draft
    from training.model import Llama
    from training.trainer import Run
    from workers.bundle import load_bundle

    if corpus_share and not generations:
        raise InputError("--corpus-share: needs --generations; without it all is the corpus")
    run = Run(
        folder=work,
        out=out or bundle / "draft",
        budget=budget(tokens, minutes, start),
        hyper=batching(DRAFT_HYPER, batch_tokens, batches_per_step),
        seed=seed,
        device=training_device(device, threads),
        report=_line,
        patience=patience,
        eval_every=eval_every,
    )
    figures = train_draft(
        model(Shape(hidden, layers, heads, kv_heads, ffn), start, bundle, seed, context),
        distillation_rows(generations, corpus, corpus_share)
        if generations
        else read_split(corpus, "train"),
        read_split(corpus, "held"),
        run,
        teacher=Llama.load(load_bundle(bundle).part("target")) if generations else None,
    )
    _emit_losses(figures.loss, json, figures.agreement)


def _emit_losses(
    held: dict[str, float], json: Path | None, agreement: dict[str, float] | None = None
) -> None:
    by_domain = {d: v for d, v in held.items() if d != "mean"}
    figures = {
        "loss": held["mean"],
        "val_loss_by_domain": by_domain,
        "acceptance_by_domain": agreement or {},
    }
    columns, rows = ["domain", "nats a token"], [[d, v] for d, v in held.items()]
    if agreement:
        columns.append("same favourite as the target")
        rows = [[*row, agreement[str(row[0])]] for row in rows]
    emit(figures, lambda: [table("Held rows", columns, rows)], json)


def _line(text: str) -> None:
    typer.echo(text, err=True)
