"""A replica's warm-up: one short response of each method before it is ready, step times after
it."""

import asyncio
import itertools
import logging
from collections.abc import Iterator, Sequence, Set

from schemas import DecodeRequest, DecodeStats, LoadReport, SamplingParams
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
"""For full batches: nothing in it repeats, so that look-ups find as few drafts as in usual traffic.
More drafts would make the steps longer."""

FIRST_TOKENS = 8
"""Each method's response before the replica is ready: a few steps compile what is compiled late."""

TOKENS, ROUNDS = 24, 5
"""Methods take turns, so that other work on the machine slows all of them down alike. The response
with the shortest steps counts, because other work only makes steps longer."""

TOGETHER = 8
"""Answers at once in a full batch. How much longer their steps are depends on the machine, and
decides which method is the fastest under load."""
TOGETHER_TOKENS, TOGETHER_ROUNDS = 12, 2

WATCH_SECONDS = 0.02
"""Interval at which a measurement checks for requests. It stops when one has arrived."""
IDLE_SECONDS = 0.5
"""Interval at which a stopped measurement checks whether the requests are answered."""


async def warm_up(engine: Engine, text: Sequence[int]) -> None:
    """Let every method answer TEXT once, so that the first request is as fast as the tenth.

    text: token ids. An engine that fails is left as it is.
    """
    texts = _beginning_anywhere(text)
    try:
        for spec in engine.methods:
            [request] = _requests(spec.name, [next(texts)], FIRST_TOKENS, "first")
            await _answer(engine, request)
    except Exception as error:  # requests will say what is wrong with it
        logger.warning("the replica was not warmed up: %s", error)


async def measure(
    engine: Engine, text: Sequence[int], prose: Sequence[int], rows: int, own: set[str]
) -> list[DecodeStats]:
    """Let every method answer TEXT and, in full batches, PROSE while there are no requests; return
    the responses with the shortest steps.

    text, prose: token ids. rows: sequences that the engine decodes at once. own: holds the ids of
    the responses in progress, see `clients_load`. A request ends the responses in progress, which
    begin anew when the engine is idle. An engine that fails is left as it is.

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
        for turn, method in itertools.product(range(ROUNDS), names):
            asked = _requests(method, [next(texts)], TOKENS, f"alone-{turn}")
            alone[method] += await _undisturbed_answers(engine, asked, own)
        for turn, method in itertools.product(range(TOGETHER_ROUNDS if rows > 1 else 0), names):
            prompts = list(itertools.islice(stories, min(rows, TOGETHER)))
            asked = _requests(method, prompts, TOGETHER_TOKENS, f"together-{turn}")
            told = await _undisturbed_answers(engine, asked, own)
            together[method] += sorted(told, key=lambda stats: stats.mean_batch)[-1:]
    except Exception as error:  # requests will say what is wrong with it
        logger.warning("the replica was not measured: %s", error)
    every = [*alone.values(), *together.values()]

    def step_seconds(stats: DecodeStats) -> float:
        return stats.decode_seconds / max(1, stats.target_steps - 1)

    return [min(known, key=step_seconds) for known in every if known]


def _beginning_anywhere(token_ids: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for begin in itertools.cycle(range(len(token_ids))):
        yield (*token_ids[begin:], *token_ids[:begin])


async def _undisturbed_answers(
    engine: Engine, asked: Sequence[DecodeRequest], own: set[str]
) -> list[DecodeStats]:
    """Return the statistics of responses at once during which no request came.

    One that a full engine refuses is left out, unless it is the only one. Raises what that raises.
    """
    while True:
        while _others(engine, own):
            await asyncio.sleep(IDLE_SECONDS)
        own |= {request.request_id for request in asked}
        try:
            answers = [asyncio.create_task(_answer(engine, request)) for request in asked]
            pending = set(answers)
            while pending and not _others(engine, own):
                _, pending = await asyncio.wait(pending, timeout=WATCH_SECONDS)
            for answer in pending:
                answer.cancel()
            failures = len(answers) > 1 or bool(pending)
            told = await asyncio.gather(*answers, return_exceptions=failures)
        finally:
            own.clear()
        if not pending:
            return [one for one in told if isinstance(one, DecodeStats)]


def clients_load(load: LoadReport, own: Set[str]) -> LoadReport:
    """Return a load without a measurement's answers, whose ids `own` holds.

    They end as soon as a request comes, so routing must not count them. Once it has come, the load
    is returned as it is.
    """
    if not own or load.requests.keys() - own:
        return load
    nothing = {"running": 0, "waiting": 0, "running_by_method": {}, "outstanding_tokens": 0}
    free = load.free_slots + load.running * load.slots_each
    return load.model_copy(update={**nothing, "requests": {}, "free_slots": free})


def _others(engine: Engine, own: Set[str]) -> bool:
    return bool(engine.load().requests.keys() - own)


def _requests(
    method: str, prompts: Sequence[Sequence[int]], tokens: int, label: str
) -> list[DecodeRequest]:
    names = [f"warm-up-{method}-{label}-{i}" for i in range(len(prompts))]
    sampling = SamplingParams(max_tokens=tokens, ignore_eos=True)
    return [
        DecodeRequest(
            request_id=name,
            method=method,
            prompt_token_ids=tuple(prompt),
            scope=name,
            sampling=sampling,
        )
        for name, prompt in zip(names, prompts, strict=True)
    ]


async def _answer(engine: Engine, request: DecodeRequest) -> DecodeStats | None:
    stats = None
    async for chunk in engine.generate(request):
        stats = chunk.stats or stats
    return stats
