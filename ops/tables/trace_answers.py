"""Plain answers to trace: decoded now, or taken from an earlier trace."""

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
    """The target's answer to a prompt. token_ids end with the end token if it stopped by itself."""

    token_ids: tuple[int, ...]
    looping: bool


class Answers:
    """Return answers that are known, and decode the others with the engine."""

    def __init__(
        self, known: Mapping[str, PlainAnswer], engines: Engines | None, batch: int
    ) -> None:
        self._known, self._engines = known, engines
        self._batch = batch

    async def to(
        self, items: Sequence[EncodedPrompt], sampling: SamplingParams
    ) -> list[PlainAnswer]:
        """Return the answers in the items' order; a batch is decoded at a time."""
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
    """Load the plain method's engine if an answer is missing."""
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


def check_answers(folder: Path, max_tokens: int) -> None:
    """Raise InputError unless `folder` holds a trace whose answers have this limit of tokens."""
    before = read_meta(folder).max_tokens
    if before != max_tokens:
        raise InputError(
            f"--answers: {folder} has answers of {before} tokens: --max-tokens {before}"
        )


def earlier_answers(
    folder: Path, items: Sequence[EncodedPrompt], temperature: float
) -> dict[str, PlainAnswer]:
    """Return the answers of an earlier trace to these prompts at this temperature, by prompt id.

    Raises InputError if there is none, and for a row without an answer.
    """
    asked = {item.prompt.id: item.token_ids for item in items}
    found = {}
    for row in read_rows(folder, [("temperature", "=", temperature), ("method", "=", BASELINE)]):
        name, answer = row["prompt_id"], row["answer"]
        if asked.get(name) != tuple(row["prompt"] or ()):
            continue
        if not answer or None in answer:
            raise InputError(f"--answers: {folder} has no answer to {name}; trace it again")
        found[name] = PlainAnswer(tuple(answer), bool(row["looping"]))
    if items and not found:
        raise InputError(
            f"--answers: {folder} has no answer to these prompts at temperature {temperature:g}"
        )
    return found
