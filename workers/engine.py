"""What every engine offers, whichever library decodes."""

import time
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Protocol

from schemas import DecodeChunk, DecodeRequest, EngineConfig, LoadReport, MethodSpec
from workers.bundle import Bundle
from workers.methods import get_method


class EngineRefusedError(ValueError):
    """The request cannot be served by this engine; the message names the field and the fix."""


class EngineBusyError(RuntimeError):
    """The engine's waiting line is full; the request may be tried elsewhere or later."""


class Engine(Protocol):
    """One target model and a portfolio of methods that share it."""

    @property
    def methods(self) -> Sequence[MethodSpec]:
        """The methods this engine was loaded with."""
        ...

    def generate(self, request: DecodeRequest) -> AsyncIterator[DecodeChunk]:
        """Stream an answer; closing the iterator cancels the work before the next step.

        Raises EngineRefusedError (unknown method, prompt too long) and EngineBusyError at the
        first iteration; a failure afterwards is a last chunk with finish_reason "error".
        """
        ...

    def load(self) -> LoadReport:
        """The present load; safe to call from any thread, never blocks on a step."""
        ...

    def close(self) -> None:
        """Stop the stepper thread and free the models; running requests end as cancelled."""
        ...


class Figures(Protocol):
    """What a scheduler publishes of its load."""

    mean_batch: float
    step_seconds: dict[str, float]

    def counts(self) -> tuple[int, int, int, int]:
        """Running and waiting sequences, tokens they may still emit, free token slots."""
        ...

    def running_by_method(self) -> dict[str, int]:
        """Running sequences of each method that has any."""
        ...


def load_report(
    replica: str, methods: Iterable[str], scheduler: Figures, *, healthy: bool
) -> LoadReport:
    """A replica's load at this moment."""
    running, waiting, outstanding, free = scheduler.counts()
    return LoadReport(
        replica=replica,
        methods=tuple(methods),
        running=running,
        waiting=waiting,
        running_by_method=scheduler.running_by_method(),
        outstanding_tokens=outstanding,
        mean_batch=scheduler.mean_batch,
        recent_step_seconds=scheduler.step_seconds,
        free_slots=free,
        healthy=healthy,
        time=time.time(),
    )


def load_engine(
    methods: Sequence[MethodSpec | str],
    bundle: Bundle,
    config: EngineConfig,
    replica: str = "local",
) -> Engine:
    """Load one target with a portfolio of methods, named or spelled out.

    Raises ValueError for an unknown method or part, for methods of different engines, and for a
    bundle without a part that a method needs.
    """
    specs = [get_method(m) if isinstance(m, str) else m for m in methods]
    names = [spec.name for spec in specs]
    if not specs or len(set(names)) != len(names):
        raise ValueError("methods: name at least one method, each of them once")
    engines = {spec.engine for spec in specs}
    if engines == {"replay"}:
        from workers.replay_engine.engine import load_replay_engine

        return load_replay_engine(specs, bundle, config, replica)
    if engines == {"vllm"}:
        from workers.vllm_engine.versions import require

        require(specs, bundle)
        # only after that: where there is no vLLM this import fails
        from workers.vllm_engine.engine import VllmEngine

        return VllmEngine(specs, bundle, config, replica)
    if engines != {"torch"}:
        raise ValueError(
            f"methods: one engine holds methods of one kind, not of {', '.join(sorted(engines))}"
        )
    # torch takes seconds to import, and callers that only name methods do not need it
    from workers.torch_engine.engine import TorchEngine

    return TorchEngine(specs, bundle, config, replica)
