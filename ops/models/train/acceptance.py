"""Acceptance length of a bundle's drafters on held-out rows, through the engine itself."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from ops.harness.decoding import decode
from schemas import EngineConfig, SamplingParams
from training.corpus import Row, read_rows
from workers.bundle import Bundle, load_bundle
from workers.chat_template import encode_chat, encode_text
from workers.engine import Engine
from workers.loader import load_engine

REFERENCE_TOKENS = range(8, 201)
MAX_TOKENS = 256


def measure_mat(
    bundle_path: Path, corpus: Path, methods: Sequence[str], per_domain: int, threads: int
) -> dict[str, dict[str, Any]]:
    """Return the tokens per target step at temperature 0 of each method: mean and by domain."""
    bundle = load_bundle(bundle_path)
    rows = held_rows(bundle, corpus / "held.jsonl", per_domain)
    config = EngineConfig(threads=threads, max_batch=8, max_waiting=len(rows), prefix_cache=False)
    found = {}
    for method in methods:
        engine = load_engine([method], bundle, config)
        try:
            by_domain = asyncio.run(_mat_by_domain(engine, bundle, rows, method))
        finally:
            engine.close()
        found[method] = {"mat": fmean(by_domain.values()), "mat_by_domain": by_domain}
    return found


def held_rows(bundle: Bundle, file: Path, per_domain: int) -> list[Row]:
    """Return the first held rows of each domain whose reference answer has 8 to 200 tokens."""
    tokenizer = bundle.tokenizer()
    chosen: dict[str, list[Row]] = defaultdict(list)
    for row in read_rows(file):
        members = chosen[row["domain"]]
        if len(members) < per_domain and (
            len(encode_text(tokenizer, row["messages"][-1]["content"])) in REFERENCE_TOKENS
        ):
            members.append(row)
    return [row for domain in sorted(chosen) for row in chosen[domain]]


async def _mat_by_domain(
    engine: Engine, bundle: Bundle, rows: Sequence[Row], method: str
) -> dict[str, float]:
    tokenizer = bundle.tokenizer()
    places = asyncio.Semaphore(8)
    tokens: dict[str, int] = defaultdict(int)
    steps: dict[str, int] = defaultdict(int)

    async def one(row: Row) -> None:
        prompt = encode_chat(tokenizer, row["messages"][:-1], True)
        sampling = SamplingParams(temperature=0.0, max_tokens=MAX_TOKENS, seed=0)
        async with places:
            stats = (await decode(engine, row["id"], method, prompt, sampling)).stats
        tokens[row["domain"]] += stats.output_tokens
        steps[row["domain"]] += stats.target_steps

    await asyncio.gather(*(one(row) for row in rows))
    return {domain: tokens[domain] / steps[domain] for domain in sorted(steps)}
