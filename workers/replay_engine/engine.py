"""The Engine protocol over recorded answers: for tests and capacity experiments only.

No model runs. An answer's tokens come back step by step, as a profile recorded them, and each
step takes its recorded time for the batch and context that share the replica: the engine waits
for it on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path

from tokenizers import Tokenizer

from schemas import DecodeChunk, DecodeRequest, EngineConfig, LoadReport, MethodSpec
from workers.bundle import Bundle
from workers.engine import EngineRefusedError, load_report
from workers.replay_engine.recording import Recording, RecordingError
from workers.replay_engine.scheduler import Scheduler
from workers.replay_engine.sequence import ReplaySequence
from workers.stream import Stream

log = logging.getLogger(__name__)


def load_replay_engine(
    methods: Sequence[MethodSpec], bundle: Bundle, config: EngineConfig, replica: str
) -> ReplayEngine:
    """Load the engine over the profile that `config.replay` names. Raises ValueError without
    one, and for a profile of another bundle or of other method settings."""
    if config.replay is None:
        raise ValueError("engine.replay: methods of engine 'replay' need a profile's folder")
    recording = load_recording(config.replay, bundle, config.replay_slowdown)
    for spec in methods:
        _check_settings(spec, recording)
    return ReplayEngine(methods, recording, bundle.backend_tokenizer(), config, replica)


def load_recording(folder: Path, bundle: Bundle, slowdown: float = 1.0) -> Recording:
    """Load the recorded answers of a bundle, every second times `slowdown`. Raises
    RecordingError, also for another bundle's.
    """
    recording = Recording.load(folder, slowdown)
    recorded, given = recording.meta.measured_under.bundle, f"{bundle.name}@{bundle.content_hash}"
    if recorded != given:
        raise RecordingError(
            f"{folder} was recorded with bundle {recorded}, not {given}: profile again"
        )
    return recording


def rows_of(config: EngineConfig) -> int:
    """Return how many sequences may run at once on a replica."""
    return min(config.max_batch, config.kv_slots // min(config.max_context, config.kv_slots))


class ReplayEngine:
    """Replay recorded answers; all sequences share a clock, a batch and a waiting line.

    Seconds are the running event loop's. Requests come from one event loop at a time.
    """

    def __init__(
        self,
        methods: Sequence[MethodSpec],
        recording: Recording,
        tokenizer: Tokenizer,
        config: EngineConfig,
        replica: str,
    ) -> None:
        """Create the engine. Raises ValueError for a method that the profile lacks."""
        unknown = [spec.name for spec in methods if spec.name not in recording.meta.methods]
        if unknown:
            raise ValueError(
                f"methods: the profile to replay has no {', '.join(unknown)}, only "
                f"{', '.join(recording.meta.methods)}"
            )
        self._specs = {spec.name: spec for spec in methods}
        self._recording, self._tokenizer, self._replica = recording, tokenizer, replica
        self._capacity = min(config.max_context, config.kv_slots)
        self._scheduler = Scheduler(
            recording.step_times,
            _now,
            rows=rows_of(config),
            context=self._capacity,
            max_waiting=config.max_waiting,
            chunk=256,
        )
        self._stepper: asyncio.Task[None] | None = None
        self._healthy = True

    @property
    def methods(self) -> Sequence[MethodSpec]:
        """The methods this engine was loaded with."""
        return list(self._specs.values())

    async def generate(self, request: DecodeRequest) -> AsyncIterator[DecodeChunk]:
        """Stream a recorded answer; see workers.engine.Engine.

        Refuses what was not recorded: a prompt, temperature or sampling parameter of its own.
        """
        self._check(request)
        answer = self._recording.find(request)
        stream = Stream(request.request_id)
        self._scheduler.submit(ReplaySequence(request, answer, stream, self._tokenizer, _now()))
        if self._stepper is None or self._stepper.done():
            self._stepper = asyncio.get_running_loop().create_task(self._run())
        async with aclosing(stream.chunks()) as chunks:
            async for chunk in chunks:
                yield chunk

    def load(self) -> LoadReport:
        """Return the present load. Safe in any thread; never waits for a step."""
        return load_report(self._replica, self._specs, self._scheduler, healthy=self._healthy)

    def close(self) -> None:
        """Take no more requests; running ones end as cancelled. May be called twice."""
        self._scheduler.stop("cancelled")
        self._healthy = False

    async def _run(self) -> None:
        """Wait for one piece of work after the other, on a clock of its own, so that late
        wake-ups make no step longer than recorded.
        """
        clock = _now()
        try:
            for seconds in self._scheduler.rounds():
                clock += seconds
                await asyncio.sleep(max(0.0, clock - _now()))
        except Exception:
            log.exception("the replay has failed")
            self._healthy = False
            self._scheduler.stop("error", "the engine has failed")

    def _check(self, request: DecodeRequest) -> None:
        if request.method not in self._specs:
            names = ", ".join(self._specs)
            raise EngineRefusedError(f"method: {request.method!r} is not served here, only {names}")
        prompt, wanted = len(request.prompt_token_ids), request.sampling.max_tokens
        if prompt + wanted > self._capacity:
            raise EngineRefusedError(
                f"max_tokens: {prompt} prompt tokens and {wanted} more exceed the context of "
                f"{self._capacity}: ask for at most {max(0, self._capacity - prompt)}"
            )


def _check_settings(spec: MethodSpec, recording: Recording) -> None:
    """Raise RecordingError where the method was recorded under other settings."""
    recorded = recording.meta.settings_hashes.get(spec.name)
    # the hash covers the engine, which the recording does not name
    given = {
        spec.model_copy(update={"engine": engine}).settings_hash() for engine in ("torch", "vllm")
    }
    if recorded is not None and recorded not in given:
        raise RecordingError(
            f"method {spec.name}: the profile to replay was measured with other settings "
            f"({recorded}): profile again, or restore the settings"
        )


def _now() -> float:
    return asyncio.get_running_loop().time()
