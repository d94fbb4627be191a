"""Faults for experiments: slow methods, a broken target, failing drafters.

Load this module only where `AppConfig.faults` is set. It changes a loaded engine from the outside,
through the engine's private parts, so that the engines themselves hold no code for it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import torch

from schemas import DecodeRequest
from workers.engine import Engine
from workers.replay_engine.engine import ReplayEngine
from workers.replay_engine.recording import RecordedAnswer, Recording
from workers.replay_engine.step_times import StepTimes
from workers.torch_engine.engine import TorchEngine
from workers.torch_engine.parts import Drafter, Proposal
from workers.torch_engine.target import Target
from workers.torch_engine.target_output import TargetOutput


class Faults:
    """Inject faults into an engine; each call may come from any thread while the engine runs."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._slowed: SlowedTarget | None = None
        self._factors: dict[str, float] = {}
        if isinstance(engine, TorchEngine):
            self._slowed = SlowedTarget(engine._target)
            engine._scheduler.target = self._slowed
        elif isinstance(engine, ReplayEngine):
            recording = engine._recording
            times = _SlowedStepTimes(recording.step_times, self._factors)
            slowed = _SlowedRecording(recording.meta, recording.answers, times)
            engine._recording = slowed
            engine._scheduler._step_times = times

    def add_target_forwards(self, method: str, forwards: int) -> None:
        """Slow a method down by so many more target forwards a step; 0 restores its speed.

        Its answers stay the same. Raise ValueError for an unknown method, a negative number, or an
        engine other than the torch engine.
        """
        self._torch_engine()
        assert self._slowed is not None
        self._check_method(method)
        if forwards < 0:
            raise ValueError(f"extra target forwards must be 0 or more, got {forwards}")
        self._slowed.extra_forwards[method] = forwards

    def scale_replay(self, method: str, factor: float) -> None:
        """Multiply every recorded second of a method by `factor`; 1 restores its speed.

        Steps follow at once, prompts from the next request on. Raise ValueError for an unknown
        method, a factor that is not above 0, or an engine other than the replay engine.
        """
        if not isinstance(self._engine, ReplayEngine):
            raise ValueError("only the replay engine takes a factor")
        self._check_method(method)
        if not factor > 0.0:
            raise ValueError(f"the replay factor must be above 0, got {factor}")
        self._factors[method] = factor

    def poison(self) -> None:
        """Overwrite the target's embeddings in memory with NaN, so that every forward gives NaN.

        Raise ValueError for an engine other than the torch engine.
        """
        with torch.inference_mode():
            self._torch_engine()._target.model.embedding.fill_(torch.nan)

    def break_drafters(self, broken: bool) -> None:
        """Make every drafter fail, or work again.

        Raise ValueError for an engine other than the torch engine.
        """
        guard = self._torch_engine()._guard
        if broken:
            vars(guard)["attempt"] = _fail
        else:
            vars(guard).pop("attempt", None)

    def _torch_engine(self) -> TorchEngine:
        if not isinstance(self._engine, TorchEngine):
            raise ValueError("only the torch engine takes this fault")
        return self._engine

    def _check_method(self, method: str) -> None:
        names = [spec.name for spec in self._engine.methods]
        if method not in names:
            raise ValueError(f"method {method!r} is not served; available methods: {names}")


class SlowedTarget(Target):
    """Run some methods' target forwards several times.

    A repeated forward writes the same keys again: it takes its time and changes no answer.
    """

    def __init__(self, target: Target) -> None:
        super().__init__(target.model, target.pool)
        self._target, self.costs = target, target.costs
        self.extra_forwards: dict[str, int] = {}
        """Additional forwards per step, by method."""

    def forward(
        self, proposals: Sequence[Proposal], captures: Collection[int] = ()
    ) -> TargetOutput:
        """Return the output of `Target.forward`, after the additional forwards."""
        extra = [self.extra_forwards.get(p.sequence.method, 0) for p in proposals]
        for done in range(max(extra)):
            repeated = [p for p, times in zip(proposals, extra, strict=True) if times > done]
            self._target.forward(repeated, captures)
        return self._target.forward(proposals, captures)


class _SlowedStepTimes(StepTimes):
    """Multiply recorded step times by a factor per method."""

    def __init__(self, recorded: StepTimes, factors: dict[str, float]) -> None:
        self._curves, self.factors = recorded._curves, factors

    def seconds(self, method: str, batch: float, context: float) -> float:
        """Return a step's recorded seconds times the method's factor."""
        return self.factors.get(method, 1.0) * super().seconds(method, batch, context)


@dataclass(frozen=True)
class _SlowedRecording(Recording):
    """Multiply recorded prefill times by a factor per method."""

    step_times: _SlowedStepTimes

    def find(self, request: DecodeRequest) -> RecordedAnswer:
        """Return the recorded answer with its prefill time scaled."""
        answer = super().find(request)
        factor = self.step_times.factors.get(request.method, 1.0)
        return replace(answer, prefill_seconds=factor * answer.prefill_seconds)


def _fail(_drafter: Drafter, _proposals: Sequence[Proposal]) -> Exception:
    """Stand in for `DrafterGuard.attempt` with a drafter that raises."""
    return RuntimeError("made to fail on purpose")
