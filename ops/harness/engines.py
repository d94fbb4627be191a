"""The engines of one measurement: all of its methods are loaded side by side."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, aclosing, closing, contextmanager

from ops.harness.output import standard_output_kept
from ops.harness.settings import Setup
from schemas import DecodeChunk, DecodeRequest, MethodSpec
from workers.bundle import Bundle
from workers.engine import Engine
from workers.loader import load_engine

POLLING_SECONDS = 1.0
"""So long after its last step a process of vLLM's polls its queue before it sleeps (busy_loop_s of
vLLM's SpinCondition), on a core that the next engine needs."""


class Engines:
    """Gives each request to the engine that was loaded for its method."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self._engine_of = {spec.name: engine for engine in engines for spec in engine.methods}
        self._polling = {id(engine): float("-inf") for engine in engines if _polls(engine)}

    def of(self, method: str) -> Engine:
        """The engine that was loaded for the method."""
        return self._engine_of[method]

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


def _polls(engine: Engine) -> bool:
    return any(spec.engine == "vllm" for spec in engine.methods)
