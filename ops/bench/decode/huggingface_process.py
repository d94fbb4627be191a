"""Hugging Face in a process of its own, so that it and our engine do not share OpenMP's threads."""

import asyncio
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from ops.bench.decode.huggingface import HuggingFace
from ops.harness.output import quiet_transformers
from schemas import SamplingParams
from workers.bundle import Bundle

_model: HuggingFace | None = None
"""In the other process: what it was started for."""


class HuggingFaceProcess:
    """HuggingFace, one call at a time, as its users run it: alone in a process.

    Two threads that compute in one process keep OpenMP threads each; where these are more than
    cores, OpenMP lets all of them sleep between operators, and both decoders would look several
    times slower than they are. Seconds are measured inside the process.
    """

    def __init__(self, bundle: Bundle, dtype: str, threads: int, device: str) -> None:
        self._process = ProcessPoolExecutor(
            max_workers=1,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start,
            initargs=(bundle, dtype, threads, device),
        )
        self.modes: tuple[str, ...] = self._process.submit(_modes).result()

    def settings(self) -> dict[str, Any]:
        """How each mode calls `generate()`."""
        return self._process.submit(_settings).result()

    async def generate(
        self,
        mode: str,
        prompt_token_ids: Sequence[int],
        sampling: SamplingParams,
        seed: int,
    ) -> tuple[tuple[int, ...], float]:
        """See HuggingFace.generate; waits without blocking the event loop."""
        call = (mode, tuple(prompt_token_ids), sampling, seed)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._process, _generate, *call)

    def top_two_gap(self, token_ids: Sequence[int]) -> float:
        """See HuggingFace.top_two_gap."""
        return self._process.submit(_top_two_gap, tuple(token_ids)).result()

    def close(self) -> None:
        """End the process."""
        self._process.shutdown()


def _start(bundle: Bundle, dtype: str, threads: int, device: str) -> None:
    global _model
    quiet_transformers()
    _model = HuggingFace(bundle, dtype, threads, device)


def _loaded() -> HuggingFace:
    assert _model is not None
    return _model


def _modes() -> tuple[str, ...]:
    return _loaded().modes


def _settings() -> dict[str, Any]:
    return _loaded().settings()


def _generate(
    mode: str, prompt_token_ids: tuple[int, ...], sampling: SamplingParams, seed: int
) -> tuple[tuple[int, ...], float]:
    return _loaded().generate(mode, prompt_token_ids, sampling, seed)


def _top_two_gap(token_ids: tuple[int, ...]) -> float:
    return _loaded().top_two_gap(token_ids)
