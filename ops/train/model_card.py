"""What the model card says of a family, measured on held rows through the engine itself."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from ops.measure.decoding import Answer, decode
from schemas import EngineConfig, SamplingParams
from training.demo_corpus import Row, read_rows
from training.model import Llama
from training.target import held_loss
from training.tokens import TokenRows
from workers.bundle import Bundle, load_bundle
from workers.chat_template import encode_chat, encode_text
from workers.engine import Engine
from workers.loader import load_engine

REFERENCE_TOKENS = range(8, 201)
MAX_TOKENS = 256
TEMPERATURES = (0.0, 0.8, 1.0)
EXAMPLES_PER_DOMAIN = 2
DRAFT_METHOD = "draft_verify"


@dataclass(frozen=True)
class HeldAnswer:
    """One held row and what the family answered under one temperature."""

    row: Row
    temperature: float
    answer: Answer


def measure_family(
    bundle_path: Path,
    corpus: Path,
    held: TokenRows,
    per_domain: int,
    threads: int,
    report: Callable[[str], None],
) -> dict[str, Any]:
    """Loops, stopping and draft acceptance per domain at each temperature, held loss, examples.

    Rows are the first of each domain whose reference has 8 to 200 tokens; averages weigh domains
    equally.
    """
    bundle = load_bundle(bundle_path)
    rows = held_rows(bundle, corpus / "held.jsonl", per_domain)
    report(f"{len(rows)} held rows at temperatures {TEMPERATURES}")
    answers = _answers(bundle, rows, TEMPERATURES, threads)
    target, draft = (Llama.load(bundle.part(p)) for p in ("target", "draft"))
    losses = held_loss(target, held, rows_per_domain=100)
    return {
        "shapes": {"target": _shape(target), "draft": _shape(draft)},
        "per_domain": per_domain,
        "bundle": f"{bundle.name} {bundle.content_hash}",
        "rows": len(rows),
        "held_loss": losses,
        "temperatures": {str(t): _figures(answers, t) for t in TEMPERATURES},
        "examples": _examples([a for a in answers if a.temperature == 0.0]),
    }


def measure_mat(
    bundle_path: Path, corpus: Path, methods: Sequence[str], per_domain: int, threads: int
) -> dict[str, dict[str, Any]]:
    """By method, MAT at temperature 0: mean and by domain."""
    bundle = load_bundle(bundle_path)
    rows = held_rows(bundle, corpus / "held.jsonl", per_domain)
    found = {}
    for method in methods:
        figures = _figures(_answers(bundle, rows, (0.0,), threads, method), 0.0)
        by_domain = {d: f["mat"] for d, f in figures["by_domain"].items()}
        found[method] = {"mat": figures["mat"], "mat_by_domain": by_domain}
    return found


def _answers(
    bundle: Bundle,
    rows: list[Row],
    temperatures: Sequence[float],
    threads: int,
    method: str = DRAFT_METHOD,
) -> list[HeldAnswer]:
    config = EngineConfig(threads=threads, max_batch=8, max_waiting=len(rows), prefix_cache=False)
    engine = load_engine([method], bundle, config)
    answers: list[HeldAnswer] = []
    try:
        for temperature in temperatures:
            answers += asyncio.run(
                _answer_all(engine, bundle, rows, temperature, config.max_batch, method)
            )
    finally:
        engine.close()
    return answers


def _shape(model: Llama) -> dict[str, int]:
    g = model.geometry
    return {
        "hidden": g.hidden,
        "layers": g.layers,
        "heads": g.heads,
        "kv_heads": g.kv_heads,
        "ffn": g.ffn,
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def held_rows(bundle: Bundle, file: Path, per_domain: int) -> list[Row]:
    """The first held rows of each domain whose reference answer has 8 to 200 tokens."""
    tokenizer = bundle.tokenizer()
    chosen: dict[str, list[Row]] = defaultdict(list)
    for row in read_rows(file):
        members = chosen[row["domain"]]
        if len(members) < per_domain and (
            len(encode_text(tokenizer, row["messages"][-1]["content"])) in REFERENCE_TOKENS
        ):
            members.append(row)
    return [row for domain in sorted(chosen) for row in chosen[domain]]


async def _answer_all(
    engine: Engine,
    bundle: Bundle,
    rows: list[Row],
    temperature: float,
    at_once: int,
    method: str,
) -> list[HeldAnswer]:
    tokenizer = bundle.tokenizer()
    places = asyncio.Semaphore(at_once)

    async def one(row: Row) -> HeldAnswer:
        prompt = encode_chat(tokenizer, row["messages"][:-1], True)
        sampling = SamplingParams(temperature=temperature, max_tokens=MAX_TOKENS, seed=0)
        async with places:
            answer = await decode(engine, f"{row['id']}-{temperature}", method, prompt, sampling)
        return HeldAnswer(row, temperature, answer)

    return list(await asyncio.gather(*(one(row) for row in rows)))


def _figures(answers: list[HeldAnswer], temperature: float) -> dict[str, Any]:
    by_domain: dict[str, list[Answer]] = defaultdict(list)
    for a in answers:
        if a.temperature == temperature:
            by_domain[a.row["domain"]].append(a.answer)
    domains = {d: _domain_figures(members) for d, members in sorted(by_domain.items())}
    keys = ("loop_share", "stop_share", "mat", "alpha")
    return {
        "by_domain": domains,
        **{k: _mean([f[k] for f in domains.values() if f[k] is not None]) for k in keys},
    }


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _domain_figures(answers: list[Answer]) -> dict[str, Any]:
    stats = [a.stats for a in answers]
    steps = sum(s.target_steps for s in stats)
    accepted = [sum(p) for p in zip(*(_padded(s.accepted_by_position) for s in stats), strict=True)]
    drafted = [sum(p) for p in zip(*(_padded(s.drafted_by_position) for s in stats), strict=True)]
    # a draft token is judged only where all before it in its chain were accepted
    judged = [drafted[0], *(min(a, d) for a, d in zip(accepted, drafted[1:], strict=False))]
    return {
        "prompts": len(stats),
        "loop_share": fmean(s.looping for s in stats),
        "stop_share": fmean(s.finish_reason == "stop" for s in stats),
        "mat": sum(s.output_tokens for s in stats) / steps,
        "alpha": sum(accepted) / sum(judged) if sum(judged) else None,
        "mean_tokens": fmean(s.output_tokens for s in stats),
    }


def _padded(counts: tuple[int, ...], positions: int = 8) -> tuple[int, ...]:
    return (*counts, *(0,) * (positions - len(counts)))


def _examples(answers: list[HeldAnswer]) -> list[dict[str, str]]:
    shown: dict[str, int] = defaultdict(int)
    examples = []
    for a in answers:
        domain = a.row["domain"]
        if shown[domain] < EXAMPLES_PER_DOMAIN:
            shown[domain] += 1
            examples.append(
                {
                    "domain": domain,
                    "prompt": a.row["messages"][-2]["content"],
                    "answer": a.answer.text,
                    "reference": a.row["messages"][-1]["content"],
                }
            )
    return examples
