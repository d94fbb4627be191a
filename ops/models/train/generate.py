"""`specadapt train generate`: what the target answers, to distil drafters on."""

from pathlib import Path
from typing import Annotated

import typer

from ops.harness import flags
from ops.harness.output import emit, say
from ops.models.train.flags import BundleDir, Corpus, Threads


def generate(
    corpus: Corpus = Path("runs/corpus"),
    bundle: BundleDir = Path("bundles/demo"),
    out: Annotated[Path, typer.Option("--out", metavar="FILE")] = Path("runs/generations.jsonl"),
    prompts: Annotated[
        list[Path] | None,
        typer.Option(
            "--prompts",
            metavar="FILE",
            help="prompts as JSON Lines; repeatable  [default: the corpus's]",
        ),
    ] = None,
    rows: Annotated[
        int, typer.Option("--rows", min=1, help="number of prompts, equal per domain")
    ] = 12_000,
    batch: Annotated[int, typer.Option("--batch", min=1, help="sequences per step")] = 32,
    max_tokens: flags.MaxTokens = 160,
    dtype: flags.DtypeFlag = None,
    threads: Threads = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Generate the target's answers to prompts, as training data for drafters.

    Example: `specadapt train generate --rows 12000`
    """
    from ops.models.train.setup import default_threads, pick_rows, prompt_rows
    from schemas import EngineConfig
    from training.generations import Drawing, generate_answers
    from workers.bundle import load_bundle

    context = 768
    config = EngineConfig(
        dtype="auto" if dtype is None else dtype.value,
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
    drawing = Drawing(max_tokens=max_tokens, seed=seed)
    count = generate_answers(load_bundle(bundle), chosen, out, config, drawing, say)
    emit({"answers": count, "file": str(out)}, lambda: [f"{count} answers in {out}"], json)
