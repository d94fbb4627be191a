"""A peer in a process of its own, so that it and our engine do not share OpenMP's threads."""

import asyncio
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Protocol

from schemas import SamplingParams

Answered = tuple[tuple[int, ...], float]
"""An answer's token ids, the end token included, and its seconds."""


class Peer(Protocol):
    """Another decoder of the bundle's target.

    modes: its ways to decode, by the names that `--peers` has.
    """

    @property
    def modes(self) -> Sequence[str]: ...

    def settings(self) -> dict[str, Any]:
        """Return how the modes are called."""
        ...

    def generate(
        self, mode: str, prompt_token_ids: Sequence[int], sampling: SamplingParams, seed: int
    ) -> Answered:
        """Answer a prompt."""
        ...


_peer: Any = None
"""In the other process: the peer that it was started for."""


class PeerProcess:
    """A peer, one call at a time, as its users run it: alone in a process.

    Two threads that compute in one process keep OpenMP threads each; where these are more than
    cores, OpenMP lets all of them sleep between operators, and both decoders would look several
    times slower than they are. Seconds are measured inside the process.
    """

    def __init__(self, make: Callable[..., Peer], *arguments: Any) -> None:
        self._process = ProcessPoolExecutor(
            max_workers=1,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start,
            initargs=(make, *arguments),
        )
        self.modes: tuple[str, ...] = self._process.submit(_modes).result()

    def settings(self) -> dict[str, Any]:
        """See Peer."""
        return self._process.submit(_settings).result()

    async def generate(
        self, mode: str, prompt_token_ids: Sequence[int], sampling: SamplingParams, seed: int
    ) -> Answered:
        """See Peer; waits without blocking the event loop."""
        call = (mode, tuple(prompt_token_ids), sampling, seed)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._process, _generate, *call)

    def top_two_gap(self, token_ids: Sequence[int]) -> float:
        """See HuggingFace.top_two_gap; other peers have none."""
        return self._process.submit(_top_two_gap, tuple(token_ids)).result()

    def close(self) -> None:
        """End the process."""
        self._process.shutdown()


def _start(make: Callable[..., Peer], *arguments: Any) -> None:
    global _peer
    _peer = make(*arguments)


def _modes() -> tuple[str, ...]:
    return tuple(_peer.modes)


def _settings() -> dict[str, Any]:
    settings: dict[str, Any] = _peer.settings()
    return settings


def _generate(
    mode: str, prompt_token_ids: tuple[int, ...], sampling: SamplingParams, seed: int
) -> Answered:
    answered: Answered = _peer.generate(mode, prompt_token_ids, sampling, seed)
    return answered


def _top_two_gap(token_ids: tuple[int, ...]) -> float:
    return float(_peer.top_two_gap(token_ids))
