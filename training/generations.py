"""What the target answers to the corpus's prompts: the text its drafters learn from."""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from schemas import DecodeRequest, EngineConfig, SamplingParams
from training.corpus import Row
from training.tokens import TokenRows, token_ids
from workers.bundle import Bundle
from workers.chat_template import encode_chat
from workers.engine import Engine
from workers.loader import load_engine

WINDOW = 2000
"""So many rows are answered in the order of their prompts' lengths: a batch's attention costs what
its longest context does."""


def generate_answers(
    bundle: Bundle,
    rows: Sequence[Row],
    out: Path,
    config: EngineConfig,
    temperatures: Sequence[float] = (0.0, 0.8),
    max_tokens: int = 200,
    seed: int = 0,
    report: Callable[[str], None] = print,
) -> int:
    """Append a line {id, domain, temperature, prompt, answer} of token ids per row to `out`; rows
    that are there already are skipped, so that a run that was cut off goes on. The temperature is
    drawn per row. Returns the number of answers in the file."""
    done = {(g["id"]) for g in read_generations(out)} if out.exists() else set()
    out.parent.mkdir(parents=True, exist_ok=True)
    engine = load_engine(["naive"], bundle, config)
    tokenizer = bundle.tokenizer()
    rng = np.random.default_rng(seed)
    drawn = rng.choice(np.asarray(temperatures), size=len(rows))
    todo = [(r, float(t)) for r, t in zip(rows, drawn, strict=True) if r["id"] not in done]
    try:
        asyncio.run(_generate(engine, tokenizer, todo, out, config, max_tokens, seed, report))
    finally:
        engine.close()
    return len(done) + len(todo)


async def _generate(
    engine: Engine,
    tokenizer: Any,
    todo: Sequence[tuple[Row, float]],
    out: Path,
    config: EngineConfig,
    max_tokens: int,
    seed: int,
    report: Callable[[str], None],
) -> None:
    places = asyncio.Semaphore(config.max_batch)
    finished = 0

    async def one(row: Row, temperature: float, prompt: list[int]) -> None:
        nonlocal finished
        sampling = SamplingParams(temperature=temperature, max_tokens=max_tokens, seed=seed)
        request = DecodeRequest(
            request_id=row["id"],
            method="naive",
            prompt_token_ids=tuple(prompt),
            sampling=sampling,
        )
        async with places:
            answer = [t async for chunk in engine.generate(request) for t in chunk.token_ids]
        line = {
            "id": row["id"],
            "domain": row["domain"],
            "temperature": temperature,
            "prompt": prompt,
            "answer": answer,
        }
        file.write(json.dumps(line) + "\n")
        finished += 1
        if finished % 200 == 0:
            file.flush()
            report(f"{finished} of {len(todo)} answers")

    with out.open("a", encoding="utf-8") as file:
        for start in range(0, len(todo), WINDOW):
            window = [
                (row, temperature, encode_chat(tokenizer, row["messages"][:-1], True))
                for row, temperature in todo[start : start + WINDOW]
            ]
            short = [w for w in window if len(w[2]) + max_tokens <= config.max_context]
            await asyncio.gather(*(one(*w) for w in sorted(short, key=lambda w: len(w[2]))))


def read_generations(file: Path) -> Iterator[dict[str, Any]]:
    """The lines of `generate_answers`; a last line that was cut off is left out."""
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):
                yield json.loads(line)


def generation_rows(file: Path) -> TokenRows:
    """Generations as token rows in which only the answers are learned.

    Raises ValueError where there is none.
    """
    tokens, weights, domains = [], [], []
    for g in read_generations(file):
        tokens.append(token_ids(g["prompt"] + g["answer"]))
        weight = np.zeros(len(tokens[-1]), dtype=np.float32)
        weight[len(g["prompt"]) :] = 1.0
        weights.append(weight)
        domains.append(str(g["domain"]))
    if not tokens:
        raise ValueError(f"{file}: no answers in it")
    names = tuple(sorted(set(domains)))
    offsets = np.concatenate(([0], np.cumsum([len(t) for t in tokens]))).astype(np.int64)
    return TokenRows(
        np.concatenate(tokens),
        np.concatenate(weights),
        offsets,
        np.ones(len(tokens), dtype=np.float32),
        np.asarray([names.index(d) for d in domains], dtype=np.int16),
        names,
    )
