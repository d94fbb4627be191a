"""The engines of one measurement, and timed requests to them."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, aclosing, closing, contextmanager
from dataclasses import dataclass

from ops.common.boundary import InputError
from ops.common.output import quiet_transformers, standard_output_kept
from ops.common.prompts import Prompt
from ops.common.settings import Setup
from schemas import DecodeChunk, DecodeRequest, DecodeStats, MethodSpec, SamplingParams
from workers.bundle import Bundle
from workers.chat_template import encode_chat
from workers.engine import Engine
from workers.loader import load_engine

POLLING_SECONDS = 1.0
"""So long after its last step a process of vLLM's polls its queue before it sleeps (busy_loop_s of
vLLM's SpinCondition), on a core that the next engine needs."""


class Engines:
    """Gives each request to the engine that was loaded for its method."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self._engine_of = {spec.name: engine for engine in engines for spec in engine.methods}
        polling = [e for e in engines if any(spec.engine == "vllm" for spec in e.methods)]
        self._polling = {id(engine): float("-inf") for engine in polling}
        threads = (getattr(engine, "threads", None) for engine in engines)
        self.threads: int | None = next(filter(None, threads), None)
        """Torch threads that decode; None without our own engine."""

    async def generate(self, request: DecodeRequest) -> AsyncIterator[DecodeChunk]:
        """As Engine.generate."""
        engine = self._engine_of[request.method]
        try:
            async with aclosing(engine.generate(request)) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    yield chunk
        finally:
            if id(engine) in self._polling:
                self._polling[id(engine)] = time.monotonic() + POLLING_SECONDS

    async def others_asleep(self, method: str | None) -> None:
        """Wait until no engine but that of `method` uses the machine (None: no engine at all).

        No request may be running.
        """
        own = id(self._engine_of[method]) if method is not None else None
        until = max((t for key, t in self._polling.items() if key != own), default=float("-inf"))
        await asyncio.sleep(until - time.monotonic())


@contextmanager
def engines_of(
    setup: Setup, bundle: Bundle, replica: str, *, prefix_cache: bool = False
) -> Iterator[Engines]:
    """The set-up's engines, with empty caches and stores, closed at the end."""
    cold = setup.engine.model_copy(update={"prefix_cache": prefix_cache})
    with ExitStack() as stack:
        with standard_output_kept():
            loaded = [
                stack.enter_context(closing(load_engine(specs, bundle, cold, f"{replica}-{i}")))
                for i, specs in enumerate(portfolios(setup))
            ]
        yield Engines(loaded)


def portfolios(setup: Setup) -> list[list[MethodSpec]]:
    """The methods of each engine, in the set-up's order.

    Methods of one target in this process share it. vLLM's own methods need an engine each, unless
    they are served in the shared layout.
    """
    found: dict[str, list[MethodSpec]] = {}
    for spec in setup.methods:
        alone = spec.engine == "vllm" and not setup.shared
        found.setdefault(spec.name if alone else f"all of {spec.engine}", []).append(spec)
    return list(found.values())


class DecodeFailedError(RuntimeError):
    """The engine failed on a request; the message is the engine's."""


@dataclass(frozen=True)
class Answer:
    """A timed answer. Seconds run from the request's start in the engine to its last token."""

    text: str
    token_ids: tuple[int, ...]
    seconds: float
    first_token_seconds: float
    stats: DecodeStats


def request_of(
    name: str,
    method: str,
    prompt_token_ids: Sequence[int],
    sampling: SamplingParams,
    scope: str = "",
) -> DecodeRequest:
    """Return a request. name: its id begins with it. scope: drafters look up past responses of the
    same scope only."""
    return DecodeRequest(
        request_id=f"{name}-{method}",
        method=method,
        prompt_token_ids=tuple(prompt_token_ids),
        sampling=sampling,
        scope=scope,
    )


async def answer_to(
    engine: Engine | Engines,
    request: DecodeRequest,
    on_chunk: Callable[[DecodeChunk], None] | None = None,
) -> Answer:
    """Decode a request to its end and time it; call `on_chunk` with each chunk.

    Raises what the engine raises, and DecodeFailedError if the response ends with an error.
    """
    text: list[str] = []
    token_ids: list[int] = []
    started = time.perf_counter()
    first: float | None = None
    stats: DecodeStats | None = None
    async for chunk in engine.generate(request):
        if chunk.finish_reason == "error":
            raise DecodeFailedError(f"{request.method} on {request.request_id}: {chunk.error}")
        if first is None and chunk.token_ids:
            first = time.perf_counter() - started
        if on_chunk is not None:
            on_chunk(chunk)
        text.append(chunk.text)
        token_ids.extend(chunk.token_ids)
        stats = chunk.stats or stats
    seconds = time.perf_counter() - started
    if stats is None:
        place = f"{request.method} on {request.request_id}"
        raise DecodeFailedError(f"{place}: the answer ended without statistics")
    return Answer("".join(text), tuple(token_ids), seconds, first or seconds, stats)


@dataclass(frozen=True)
class EncodedPrompt:
    """A prompt with its token ids in the family's chat layout."""

    prompt: Prompt
    token_ids: tuple[int, ...]


def encode(
    bundle: Bundle, prompts: Sequence[Prompt], longest: int
) -> tuple[list[EncodedPrompt], int]:
    """Tokenize prompts in the family's chat layout and leave out those that are too long.

    longest: tokens of a prompt. Returns the encoded prompts and the number left out. Raises
    InputError if none is left.
    """
    quiet_transformers()
    tokenizer = bundle.tokenizer()
    encoded = [
        EncodedPrompt(p, tuple(encode_chat(tokenizer, p.messages, add_generation_prompt=True)))
        for p in prompts
    ]
    kept = [e for e in encoded if len(e.token_ids) <= longest]
    if not kept:
        raise InputError(f"all {len(encoded)} prompts are longer than {longest} tokens")
    return kept, len(encoded) - len(kept)
