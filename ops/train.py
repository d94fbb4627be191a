"""`specadapt train`: tokenizer, target and drafters, for the demo family or a user's own."""

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from ops import flags
from ops.boundary import show_help
from ops.output import emit, table

train = typer.Typer(
    help="Train a tokenizer, a target, and drafters for it.",
    callback=show_help,
    invoke_without_command=True,
)

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

    from workers.training.corpus import build_corpus, read_rows, repeats
    from workers.training.tokenizer import train_tokenizer
    from workers.training.tokens import tokenise

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
    corpus: Corpus = Path("runs/corpus"),
    bundle: BundleDir = Path("bundles/demo"),
    work: Work = Path("runs/target"),
    tokens: Tokens = 40_000_000,
    minutes: Minutes = None,
    hidden: Hidden = 320,
    layers: Layers = 14,
    heads: Heads = 5,
    kv_heads: KvHeads = 1,
    ffn: Ffn = 832,
    device: Device = "auto",
    threads: Threads = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Train the target on the corpus, or go on where the last run in --work stopped.

    Example: `specadapt train target --minutes 120`
    """
    from ops.training import budget, geometry, read_split, training_device
    from workers.training.target import train_target

    held = train_target(
        geometry(hidden, layers, heads, kv_heads, ffn, bundle),
        read_split(corpus, "train"),
        read_split(corpus, "held"),
        work,
        bundle / "target",
        budget(tokens, minutes),
        seed=seed,
        device=training_device(device, threads),
        report=_line,
    )
    _emit_losses(held, json)


@train.command("generate")
def generate(
    corpus: Corpus = Path("runs/corpus"),
    bundle: BundleDir = Path("bundles/demo"),
    out: Annotated[Path, typer.Option("--out", metavar="FILE")] = Path("runs/generations.jsonl"),
    rows: Annotated[int, typer.Option("--rows", min=1, help="prompts, equal per domain")] = 12_000,
    batch: Annotated[int, typer.Option("--batch", min=1, help="sequences in one step")] = 32,
    max_tokens: flags.MaxTokens = 160,
    threads: Threads = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Let the target answer the corpus's prompts: what drafters are distilled on.

    Example: `specadapt train generate --rows 12000`
    """
    from ops.training import default_threads, pick_rows
    from schemas import EngineConfig
    from workers.bundle import load_bundle
    from workers.training.generations import generate_answers

    context = 768
    config = EngineConfig(
        threads=threads or default_threads(),
        max_batch=batch,
        kv_slots=batch * context,
        max_context=context,
        max_waiting=rows,
    )
    chosen = pick_rows(corpus / "train.jsonl", rows, seed)
    count = generate_answers(
        load_bundle(bundle), chosen, out, config, max_tokens=max_tokens, seed=seed, report=_line
    )
    emit({"answers": count, "file": str(out)}, lambda: [f"{count} answers in {out}"], json)


@train.command("draft")
def draft(
    corpus: Corpus = Path("runs/corpus"),
    bundle: BundleDir = Path("bundles/demo"),
    work: Work = Path("runs/draft"),
    generations: Annotated[
        Path | None,
        typer.Option("--generations", metavar="FILE", help="distil on these answers of the target"),
    ] = None,
    start: Annotated[
        Path | None, typer.Option("--start", metavar="DIR", help="weights to start from")
    ] = None,
    tokens: Tokens = 8_000_000,
    minutes: Minutes = None,
    hidden: Hidden = 192,
    layers: Layers = 2,
    heads: Heads = 3,
    kv_heads: KvHeads = 1,
    ffn: Ffn = 512,
    device: Device = "auto",
    threads: Threads = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Train the draft model on the corpus, or distil it on the target's own answers.

    Example: `specadapt train draft && specadapt train draft --generations runs/generations.jsonl
    --start bundles/demo/draft --work runs/draft-distilled`
    """
    from ops.training import budget, geometry, read_split, training_device
    from workers.bundle import load_bundle
    from workers.training.draft import train_draft
    from workers.training.generations import generation_rows

    rows = generation_rows(generations) if generations else read_split(corpus, "train")
    figures = train_draft(
        geometry(hidden, layers, heads, kv_heads, ffn, bundle),
        rows,
        read_split(corpus, "held"),
        work,
        bundle / "draft",
        budget(tokens, minutes),
        seed=seed,
        device=training_device(device, threads),
        report=_line,
        target=load_bundle(bundle).part("target") if generations else None,
        start=start,
    )
    if generations:
        body = {"loss": None, "val_loss_by_domain": {}, "acceptance_by_domain": figures}
        emit(
            body,
            lambda: [
                table("Agreement with the target", ["domain", "share"], list(figures.items()))
            ],
            json,
        )
    else:
        _emit_losses(figures, json)


@train.command("card")
def card(
    corpus: Corpus = Path("runs/corpus"),
    bundle: BundleDir = Path("bundles/demo"),
    per_domain: Annotated[int, typer.Option("--per-domain", min=1, help="held rows")] = 24,
    target_log: Annotated[
        Path, typer.Option("--target-log", metavar="FILE", help="log.jsonl of `train target`")
    ] = Path("runs/target/log.jsonl"),
    before: Annotated[
        Path | None,
        typer.Option(
            "--before", metavar="FILE", help="`train measure-draft`'s JSON of the undistilled draft"
        ),
    ] = None,
    readme: Annotated[
        Path | None,
        typer.Option("--readme", metavar="FILE", help="also write the card as Markdown"),
    ] = None,
    threads: Threads = None,
    json: flags.Json = None,
) -> None:
    """Measure the family on held rows: loops, stopping, draft acceptance, loss; with examples.

    Example: `specadapt train card --readme bundles/demo/README.md --json bundles/demo/card.json`
    """
    from ops.model_card import measure_family
    from ops.model_card_text import render
    from ops.training import COMMANDS, default_threads, read_split, tokens_seen

    figures = measure_family(
        bundle, corpus, read_split(corpus, "held"), per_domain, threads or default_threads(), _line
    )
    figures["tokens_seen"] = tokens_seen(target_log)
    figures["before_distillation"] = json_module.loads(before.read_text()) if before else None
    if readme is not None:
        readme.write_text(render(figures, COMMANDS), encoding="utf-8")
    emit(figures, lambda: [f"measured {figures['rows']} held rows"], json)


@train.command("prompts")
def prompts_command(
    corpus: Corpus = Path("runs/corpus"),
    bundle: BundleDir = Path("bundles/demo"),
    out: Annotated[Path, typer.Option("--out", metavar="DIR")] = Path("runs/prompts"),
    per_domain: Annotated[int, typer.Option("--per-domain", min=1)] = 600,
    json: flags.Json = None,
) -> None:
    """Cut prompts out of the corpus, held.jsonl to profile and train.jsonl to fit clusters on.

    Example: `specadapt train prompts`
    """
    from ops.corpus_prompts import write_prompts
    from workers.bundle import load_bundle

    family = load_bundle(bundle)
    counts = {
        split: write_prompts(family, corpus, split, per_domain, out / f"{split}.jsonl")
        for split in ("held", "train")
    }
    emit(counts, lambda: [table("Prompts", ["split", "prompts"], list(counts.items()))], json)


@train.command("measure-draft")
def measure_draft_command(
    corpus: Corpus = Path("runs/corpus"),
    bundle: BundleDir = Path("bundles/demo"),
    per_domain: Annotated[int, typer.Option("--per-domain", min=1, help="held rows")] = 24,
    threads: Threads = None,
    json: flags.Json = None,
) -> None:
    """Measure the MAT of the bundle's present draft on held rows, at temperature 0.

    Example: `specadapt train measure-draft --json runs/draft-before.json`
    """
    from ops.model_card import measure_draft
    from ops.training import default_threads

    figures = measure_draft(bundle, corpus, per_domain, threads or default_threads())
    rows = [*figures["mat_by_domain"].items(), ("mean", figures["mat"])]
    emit(figures, lambda: [table("MAT at temperature 0", ["domain", "MAT"], rows)], json)


def _emit_losses(held: dict[str, float], json: Path | None) -> None:
    by_domain = {d: v for d, v in held.items() if d != "mean"}
    figures = {"loss": held["mean"], "val_loss_by_domain": by_domain, "acceptance_by_domain": {}}
    emit(
        figures, lambda: [table("Held loss", ["domain", "nats a token"], list(held.items()))], json
    )


def _line(text: str) -> None:
    typer.echo(text, err=True)
