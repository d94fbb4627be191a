"""Answers of the target to prompts, which its heads learn from."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from schemas import DecodeRequest, EngineConfig, SamplingParams
from training.packing import Text
from workers.bundle import Bundle
from workers.chat_template import encode_chat
from workers.loader import load_engine

REPORT_EVERY = 200
TEMPERATURES = (0.0, 0.8)


class Asked(NamedTuple):
    """A conversation that the target answers, as messages with role and content."""

    id: str
    domain: str
    messages: Sequence[Mapping[str, str]]


def generate_answers(
    bundle: Bundle,
    asked: Sequence[Asked],
    out: Path,
    config: EngineConfig,
    sampling: SamplingParams,
    report: Callable[[str], None] = print,
) -> int:
    """Append a line {id, domain, temperature, prompt, answer} per conversation to `out`.

    Those that are in the file already are skipped, so that an interrupted run resumes, and those
    that do not fit the context. sampling: with one of TEMPERATURES instead of its own, drawn by its
    seed. Returns the number of responses in the file.
    """
    done = {g["id"] for g in read_generations(out)} if out.exists() else set()
    out.parent.mkdir(parents=True, exist_ok=True)
    engine, tokenizer = load_engine(["naive"], bundle, config), bundle.tokenizer()
    drawn = np.random.default_rng(sampling.seed).choice(TEMPERATURES, len(asked))
    places = asyncio.Semaphore(config.max_batch)

    async def answer(one: Asked, temperature: float, file: IO[str]) -> None:
        prompt = encode_chat(tokenizer, one.messages, True)
        if len(prompt) > config.max_context - sampling.max_tokens:
            return
        request = DecodeRequest(
            request_id=one.id,
            method="naive",
            prompt_token_ids=tuple(prompt),
            sampling=sampling.model_copy(update={"temperature": temperature}),
        )
        async with places:
            tokens = [t async for chunk in engine.generate(request) for t in chunk.token_ids]
        line = {"id": one.id, "domain": one.domain, "temperature": temperature}
        file.write(json.dumps(line | {"prompt": prompt, "answer": tokens}) + "\n")
        done.add(one.id)
        if len(done) % REPORT_EVERY == 0:
            file.flush()
            report(f"{len(done)} of {len(asked)} answers")

    async def answer_all() -> None:
        with out.open("a", encoding="utf-8") as file:
            todo = zip(asked, drawn, strict=True)
            await asyncio.gather(
                *(answer(one, float(t), file) for one, t in todo if one.id not in done)
            )

    try:
        asyncio.run(answer_all())
    finally:
        engine.close()
    return len(done)


def read_generations(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of `generate_answers` without a last line that was cut off."""
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):
                yield json.loads(line)


def generated_texts(file: Path) -> list[Text]:
    """Return the responses of a file that `generate_answers` wrote."""
    return [Text.of(g["prompt"], g["answer"], str(g["domain"])) for g in read_generations(file)]
