"""Answers of the target to prompts, which its heads learn from."""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from schemas import DecodeRequest, EngineConfig, SamplingParams
from training.tokens import TokenRows, token_ids
from workers.bundle import Bundle
from workers.chat_template import encode_chat
from workers.engine import Engine
from workers.loader import load_engine

WINDOW = 2000
"""Prompts that are answered in the order of their lengths: a batch's attention costs what its
longest context does."""
REPORT_EVERY = 200


class Asked(NamedTuple):
    """A conversation that the target answers, as messages with role and content."""

    id: str
    domain: str
    messages: Sequence[Mapping[str, str]]


Request = tuple[Asked, DecodeRequest]


@dataclass(frozen=True)
class Drawing:
    """How answers are sampled: one of the temperatures per prompt, drawn by the seed."""

    temperatures: Sequence[float] = (0.0, 0.8)
    max_tokens: int = 200
    seed: int = 0


def generate_answers(
    bundle: Bundle,
    asked: Sequence[Asked],
    out: Path,
    config: EngineConfig,
    drawing: Drawing,
    report: Callable[[str], None] = print,
) -> int:
    """Append a line {id, domain, temperature, prompt, answer} per conversation to `out`.

    Those that are in the file already are skipped, so that an interrupted run resumes. Returns the
    number of answers in the file.
    """
    done = {(g["id"]) for g in read_generations(out)} if out.exists() else set()
    out.parent.mkdir(parents=True, exist_ok=True)
    engine = load_engine(["naive"], bundle, config)
    rng = np.random.default_rng(drawing.seed)
    drawn = rng.choice(np.asarray(drawing.temperatures), size=len(asked))
    todo = [(a, float(t)) for a, t in zip(asked, drawn, strict=True) if a.id not in done]
    windows = _windows(bundle.tokenizer(), todo, drawing, config.max_context)
    finished = 0
    with out.open("a", encoding="utf-8") as file:

        def write(one: Asked, request: DecodeRequest, answer: list[int]) -> None:
            nonlocal finished
            line = {
                "id": one.id,
                "domain": one.domain,
                "temperature": request.sampling.temperature,
                "prompt": list(request.prompt_token_ids),
                "answer": answer,
            }
            file.write(json.dumps(line) + "\n")
            finished += 1
            if finished % REPORT_EVERY == 0:
                file.flush()
                report(f"{finished} of {len(todo)} answers")

        try:
            asyncio.run(_answer(engine, windows, config.max_batch, write))
        finally:
            engine.close()
    return len(done) + len(todo)


def _windows(
    tokenizer: Any, todo: Sequence[tuple[Asked, float]], drawing: Drawing, max_context: int
) -> Iterator[list[Request]]:
    """Yield the requests that fit the context, WINDOW at a time, the shortest prompt first."""
    for start in range(0, len(todo), WINDOW):
        requests = [
            (one, _request(one, temperature, tokenizer, drawing))
            for one, temperature in todo[start : start + WINDOW]
        ]
        room = max_context - drawing.max_tokens
        short = [each for each in requests if len(each[1].prompt_token_ids) <= room]
        yield sorted(short, key=lambda each: len(each[1].prompt_token_ids))


def _request(asked: Asked, temperature: float, tokenizer: Any, drawing: Drawing) -> DecodeRequest:
    return DecodeRequest(
        request_id=asked.id,
        method="naive",
        prompt_token_ids=tuple(encode_chat(tokenizer, asked.messages, True)),
        sampling=SamplingParams(
            temperature=temperature, max_tokens=drawing.max_tokens, seed=drawing.seed
        ),
    )


async def _answer(
    engine: Engine,
    windows: Iterable[list[Request]],
    most: int,
    write: Callable[[Asked, DecodeRequest, list[int]], None],
) -> None:
    """Decode every request, at most so many at a time, and write each answer."""
    places = asyncio.Semaphore(most)

    async def one(asked: Asked, request: DecodeRequest) -> None:
        async with places:
            answer = [t async for chunk in engine.generate(request) for t in chunk.token_ids]
        write(asked, request, answer)

    for window in windows:
        await asyncio.gather(*(one(*each) for each in window))


def read_generations(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of `generate_answers` without a last line that was cut off."""
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):
                yield json.loads(line)


class Answer(NamedTuple):
    """An answer of the target and its prompt, as token ids, and the kind of prompt."""

    prompt: Sequence[int]
    answer: Sequence[int]
    domain: str


def generation_rows(file: Path) -> TokenRows:
    """Return generations as token rows in which only the answers are learned.

    Raises ValueError if there are none.
    """
    answers = [Answer(g["prompt"], g["answer"], str(g["domain"])) for g in read_generations(file)]
    if not answers:
        raise ValueError(f"{file}: no answers in it")
    return answer_rows(answers)


def answer_rows(answers: Sequence[Answer], longest: int | None = None) -> TokenRows:
    """Return at least one answer as token rows in which only the answers are learned.

    longest: tokens of a row; a longer one loses its first tokens.
    """
    names = tuple(sorted({a.domain for a in answers}))
    tokens, weights = [], []
    for prompt, answer, _ in answers:
        kept = slice(None if longest is None else -longest, None)
        tokens.append(token_ids([*prompt, *answer][kept]))
        weights.append(np.asarray(([0.0] * len(prompt) + [1.0] * len(answer))[kept], np.float32))
    offsets = np.concatenate(([0], np.cumsum([len(t) for t in tokens]))).astype(np.int64)
    return TokenRows(
        np.concatenate(tokens),
        np.concatenate(weights),
        offsets,
        np.ones(len(tokens), dtype=np.float32),
        np.asarray([names.index(a.domain) for a in answers], dtype=np.int16),
        names,
    )
