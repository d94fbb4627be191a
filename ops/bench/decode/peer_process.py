"""A peer in a process of its own, so that it and our engine do not share OpenMP's threads."""

import asyncio
import multiprocessing
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, Protocol

from ops.harness.boundary import InputError
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


class PeerProcess:
    """A peer, one call at a time, as its users run it: alone in a process.

    Two threads that compute in one process keep OpenMP threads each; where these are more than
    cores, OpenMP lets all of them sleep between operators, and both decoders would look several
    times slower than they are. Seconds are measured inside the process.
    """

    def __init__(self, make: Callable[..., Peer], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_run, args=(other, make, arguments), daemon=True)
        self._process.start()
        other.close()
        self.modes: tuple[str, ...] = tuple(self._result())

    def settings(self) -> dict[str, Any]:
        """See Peer."""
        settings: dict[str, Any] = self._call("settings")
        return settings

    async def generate(
        self, mode: str, prompt_token_ids: Sequence[int], sampling: SamplingParams, seed: int
    ) -> Answered:
        """See Peer; waits without blocking the event loop."""
        answered: Answered = await asyncio.to_thread(
            self._call, "generate", mode, tuple(prompt_token_ids), sampling, seed
        )
        return answered

    def top_two_gap(self, token_ids: Sequence[int]) -> float:
        """See HuggingFace.top_two_gap; other peers have none."""
        return float(self._call("top_two_gap", tuple(token_ids)))

    def close(self) -> None:
        """Kill the process, which has nothing to save: what it imported may hang at its exit."""
        self._process.kill()
        self._process.join()
        self._connection.close()

    def _call(self, name: str, *arguments: Any) -> Any:
        return self._result((name, arguments))

    def _result(self, call: tuple[str, Sequence[Any]] | None = None) -> Any:
        """Return the result of a call, or of the start. Raise what the process raised, and
        InputError where it has died."""
        try:
            if call is not None:
                self._connection.send(call)
            result = self._connection.recv()
        except (EOFError, OSError) as error:
            raise InputError("--peers: a peer's process has died") from error
        if isinstance(result, Exception):
            raise result
        return result


def _run(connection: Connection, make: Callable[..., Peer], arguments: Sequence[Any]) -> None:
    """Send a peer's modes, then the result of each call that arrives, or the exception."""
    try:
        peer = make(*arguments)
    except Exception as error:
        connection.send(error)
        return
    connection.send(tuple(peer.modes))
    while True:
        name, given = connection.recv()
        try:
            result = getattr(peer, name)(*given)
        except Exception as error:
            result = error
        connection.send(result)
