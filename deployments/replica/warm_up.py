"""A replica's warm-up: one short answer of each method before it is ready, step times after it."""

import asyncio
import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence

from schemas import DecodeRequest, DecodeStats, SamplingParams
from workers.engine import Engine

logger = logging.getLogger(__name__)

TEXT = (
    "Write a function that adds the numbers of a list, and say in one sentence what it does.\n"
    "def add(numbers):\n    total = 0\n    for number in numbers:\n        total += number\n"
    "    return total\n"
)
"""Some prose and some code that repeats itself, so that every drafter has something to draft."""

PROSE = (
    "The ferry left an hour late, and nobody minded. A boy counted gulls until there were too "
    "many, two women shared an orange, and the captain, who had sung at weddings, tried to "
    "remember what his mother used to say about fog. When the island came out of it at last"
)
"""For full batches: what goes on from here is said for the first time, as most of what is asked is,
so that who looks drafts up finds as few as usual. More of them than usual make long steps."""

TOKENS = 24
LEAST_ROUNDS = 3
"""Methods take turns, so that what else goes on meanwhile hits all alike."""

MOST_ROUNDS = 11
"""The machine may stay busy with other things: what was found until then has to do."""

TOGETHER = 8
"""Answers at once, by which full batches are known: how much longer their steps are is this
machine's, and under load nothing else decides who pays."""
TOGETHER_TOKENS, TOGETHER_ROUNDS = 12, 2

AGREE = 1.1
"""A method's steps are known when its two shortest measurements differ by less than this factor."""

WATCH_SECONDS = 0.02
"""How often a measurement looks whether a request has arrived, for which it makes way."""
IDLE_SECONDS = 0.5
"""How often it looks whether the requests that it made way for are answered."""


async def warm_up(engine: Engine, text: Sequence[int]) -> None:
    """Let every method answer TEXT once, so that the first request is as fast as the tenth.

    text: token ids. An engine that fails is left as it is.
    """
    texts = _beginning_anywhere(text)
    try:
        for spec in engine.methods:
            await _answer(engine, spec.name, next(texts), f"warm-up-{spec.name}", TOKENS)
    except Exception as error:  # requests will say what is wrong with it
        logger.warning("the replica was not warmed up: %s", error)


async def measure(
    engine: Engine, text: Sequence[int], prose: Sequence[int] = (), rows: int = 1
) -> list[DecodeStats]:
    """Let every method answer TEXT and, in full batches, PROSE while nobody asks; return the
    answers with the shortest steps.

    text, prose: token ids. rows: sequences that the engine decodes at once. Other work on the
    machine only makes steps longer, so rounds go on until measurements agree. A request ends the
    answers in progress, which begin anew when the engine is idle. An engine that fails is left as
    it is.

    Each prompt starts at another place in the text, so that none is found in the prefix cache and
    prefills are measured too. Each has its own scope, so that none is drafted from another's
    answer.
    """
    names = [spec.name for spec in engine.methods]
    alone: dict[str, list[DecodeStats]] = {name: [] for name in names}
    together: dict[str, list[DecodeStats]] = {name: [] for name in names}
    texts, stories = _beginning_anywhere(text), _beginning_anywhere(prose)
    next(texts)
    try:
        for turn, method in itertools.product(range(MOST_ROUNDS), names):
            if turn >= LEAST_ROUNDS and _undisturbed(alone):
                break
            alone[method] += await _undisturbed_answers(engine, method, [next(texts)], TOKENS, turn)
        for turn, method in itertools.product(range(TOGETHER_ROUNDS if rows > 1 else 0), names):
            prompts = list(itertools.islice(stories, min(rows, TOGETHER)))
            told = await _undisturbed_answers(engine, method, prompts, TOGETHER_TOKENS, turn)
            together[method] += sorted(told, key=lambda stats: stats.mean_batch)[-1:]
    except Exception as error:  # requests will say what is wrong with it
        logger.warning("the replica was not measured: %s", error)
    every = [*alone.values(), *together.values()]
    return [min(known, key=_step_seconds) for known in every if known]


def _beginning_anywhere(token_ids: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for begin in itertools.cycle(range(len(token_ids))):
        yield (*token_ids[begin:], *token_ids[:begin])


def _undisturbed(answers: Mapping[str, Sequence[DecodeStats]]) -> bool:
    shortest = (sorted(map(_step_seconds, known))[:2] for known in answers.values())
    return all(len(two) == 2 and two[1] < AGREE * two[0] for two in shortest)


def _step_seconds(stats: DecodeStats) -> float:
    return stats.decode_seconds / max(1, stats.target_steps - 1)


async def _undisturbed_answers(
    engine: Engine, method: str, prompts: Sequence[Sequence[int]], tokens: int, turn: int
) -> list[DecodeStats]:
    """Return the statistics of answers at once during which no request came.

    One that a full engine refuses is left out, unless it is the only one. Raises what that raises.
    """
    while True:
        while _present(engine) > 0:
            await asyncio.sleep(IDLE_SECONDS)
        answers = [
            asyncio.create_task(
                _answer(engine, method, prompt, f"warm-up-{method}-{turn}-{i}", tokens)
            )
            for i, prompt in enumerate(prompts)
        ]
        pending = set(answers)
        while pending and _present(engine) <= len(prompts):
            _, pending = await asyncio.wait(pending, timeout=WATCH_SECONDS)
        for answer in pending:
            answer.cancel()
        told = await asyncio.gather(*answers, return_exceptions=len(answers) > 1 or bool(pending))
        if not pending:
            return [one for one in told if isinstance(one, DecodeStats)]


def _present(engine: Engine) -> int:
    load = engine.load()
    return load.running + load.waiting


async def _answer(
    engine: Engine, method: str, token_ids: Sequence[int], request_id: str, tokens: int
) -> DecodeStats | None:
    sampling = SamplingParams(max_tokens=tokens, ignore_eos=True)
    request = DecodeRequest(
        request_id=request_id,
        method=method,
        prompt_token_ids=tuple(token_ids),
        scope=request_id,
        sampling=sampling,
    )
    stats = None
    async for chunk in engine.generate(request):
        stats = chunk.stats or stats
    return stats
