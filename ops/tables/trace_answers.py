"""The plain answers that are traced: decoded here, or those of an earlier trace."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ops.harness.boundary import InputError
from ops.harness.decoding import EncodedPrompt, decode
from ops.harness.engines import Engines, engines_of
from ops.harness.settings import Setup
from ops.tables.trace_store import read_meta, read_rows
from router.fit.speedup import BASELINE
from schemas import SamplingParams
from workers.bundle import load_bundle


@dataclass(frozen=True)
class PlainAnswer:
    """What the target says to a prompt; token_ids end with the end token where it stopped."""

    token_ids: tuple[int, ...]
    looping: bool


class Answers:
    """Gives each prompt's answer: one that is known, else the engine's."""

    def __init__(
        self, known: Mapping[str, PlainAnswer], engines: Engines | None, batch: int
    ) -> None:
        self._known, self._engines = known, engines
        self._batch = batch

    async def to(
        self, items: Sequence[EncodedPrompt], sampling: SamplingParams
    ) -> list[PlainAnswer]:
        """In the items' order; so many at once as a batch holds."""
        places = asyncio.Semaphore(self._batch)

        async def one(item: EncodedPrompt) -> PlainAnswer:
            known = self._known.get(item.prompt.id)
            if known is not None or self._engines is None:
                return self._known[item.prompt.id]
            async with places:
                asked = f"trace-{item.prompt.id}"
                got = await decode(self._engines, asked, BASELINE, item.token_ids, sampling)
            return PlainAnswer(got.token_ids, got.stats.looping)

        return await asyncio.gather(*(one(item) for item in items))


@contextmanager
def answers_for(
    items: Sequence[EncodedPrompt], known: Mapping[str, PlainAnswer], setup: Setup, batch: int
) -> Iterator[Answers]:
    """Loads the plain method's engine where an answer is missing."""
    if all(item.prompt.id in known for item in items):
        yield Answers(known, None, batch)
        return
    room = {"max_batch": batch, "kv_slots": batch * setup.engine.max_context}
    plain = replace(
        setup,
        methods=tuple(spec for spec in setup.methods if spec.name == BASELINE),
        engine=setup.engine.model_copy(update=room),
    )
    with engines_of(plain, load_bundle(setup.bundle), "trace") as engines:
        yield Answers(known, engines, batch)


def earlier_answers(
    folder: Path, items: Sequence[EncodedPrompt], temperature: float, max_tokens: int
) -> dict[str, PlainAnswer]:
    """By prompt id, what an earlier trace answered to these very prompts at this temperature.
    Raises InputError for a folder without a trace, and where its answers end elsewhere."""
    before = read_meta(folder).max_tokens
    if before != max_tokens:
        raise InputError(
            f"--answers: {folder} has answers of {before} tokens: --max-tokens {before}"
        )
    asked = {item.prompt.id: item.token_ids for item in items}
    return {
        row["prompt_id"]: PlainAnswer(tuple(row["answer"]), row["looping"])
        for row in read_rows(folder, [("temperature", "=", temperature), ("method", "=", BASELINE)])
        if asked.get(row["prompt_id"]) == tuple(row["prompt"])
    }
