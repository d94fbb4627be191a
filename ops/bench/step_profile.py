"""Where a decode step's time goes: forwards, operators, and the bytes that must be read anyway."""

import asyncio
import math
import statistics
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from ops.harness.decoding import EncodedPrompt, encode
from ops.harness.prompts import Prompt
from ops.harness.settings import Setup
from ops.harness.stepping import Stepper
from schemas import EngineConfig, SamplingParams
from workers.bundle import Bundle, load_bundle
from workers.torch_engine.method import Method
from workers.torch_engine.models.block_weights import PACKED
from workers.torch_engine.models.kv_pool import KvPool
from workers.torch_engine.models.layout import Layout, Span
from workers.torch_engine.models.model import Model
from workers.torch_engine.models.operators import widens_float16
from workers.torch_engine.models.static_layout import StaticLayout
from workers.weight_files import StoredTensor, read_header, stored_tensors

OPERATORS = 12
"""Operators listed for each method."""
BANDWIDTH_BYTES = 1 << 28
"""Read in one go to measure the memory's bandwidth; several times any cache."""


class TimedModel:
    """A Model that adds up what its layouts and forwards cost."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.seconds = 0.0
        self.forwards = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def lay_out(self, spans: Sequence[Span], pool: KvPool) -> Layout | StaticLayout:
        """See Model."""
        started = time.perf_counter()
        layout = self._model.lay_out(spans, pool)
        self.seconds += time.perf_counter() - started
        return layout

    def forward(
        self, layout: Layout | StaticLayout, pool: KvPool, captures: Collection[int] = ()
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """See Model."""
        started = time.perf_counter()
        result = self._model.forward(layout, pool, captures)
        self.seconds += time.perf_counter() - started
        self.forwards += 1
        return result


@dataclass
class _Steps:
    """Steps of one method: their seconds, and those of the target's and the drafter's forwards."""

    seconds: list[float] = field(default_factory=list)
    target: list[float] = field(default_factory=list)
    drafter: list[float] = field(default_factory=list)
    drafts: int = 0
    tokens: int = 0


def profile_steps(
    setup: Setup, prompts: Sequence[Prompt], max_tokens: int
) -> dict[str, dict[str, Any]]:
    """Figures by method, prompt after prompt at temperature 0 in this thread; prefills left out.

    step_ms is a median over steps, and so are its parts. bytes_per_step: weights of the target,
    and of the drafter for each of its forwards; limit_ms: those bytes over the bandwidth that this
    machine reads memory with. operators: calls and microseconds a step, under the profiler, which
    slows small ones down.
    """
    bundle = load_bundle(setup.bundle)
    encoded, _ = encode(bundle, prompts, setup.engine.max_context - max_tokens)
    with torch.inference_mode():
        bench = _Bench(Stepper(setup.methods, bundle, setup.engine), bundle, setup.engine)
        return asyncio.run(bench.all_methods(encoded, max_tokens))


def read_bandwidth() -> float:
    """Bytes a second that the present number of threads reads from memory, the best of five."""
    block = torch.ones(BANDWIDTH_BYTES // 4)
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        block.sum()
        seconds.append(time.perf_counter() - started)
    return BANDWIDTH_BYTES / min(seconds)


class _Bench:
    def __init__(self, stepper: Stepper, bundle: Bundle, config: EngineConfig) -> None:
        self._stepper, self._bundle, self._config = stepper, bundle, config
        self._target = TimedModel(stepper.models.target.model)
        stepper.models.target.model = self._target
        self._drafters: dict[int, TimedModel] = {}

    async def all_methods(
        self, encoded: Sequence[EncodedPrompt], max_tokens: int
    ) -> dict[str, dict[str, Any]]:
        bandwidth = read_bandwidth()
        methods = self._stepper.models.methods
        timed = {name: self._time_drafter(method) for name, method in methods.items()}
        steps = {name: _Steps() for name in methods}
        for name, method in methods.items():
            self._decode(method, encoded[0], 16, _Steps(), timed[name])
        # methods take turns, so that a slow moment of the machine hits all alike
        for item in encoded:
            for name, method in methods.items():
                self._decode(method, item, max_tokens, steps[name], timed[name])
        figures = {}
        for name, method in methods.items():
            figures[name] = self._figures(method, steps[name], bandwidth)
            figures[name]["operators"] = self._operators(
                method, encoded[0], max_tokens, timed[name]
            )
        return figures

    def _time_drafter(self, method: Method) -> TimedModel | None:
        """The drafter's model, timed; drafters that several methods share are wrapped once."""
        drafter: Any = method.plan.drafter
        if not hasattr(drafter, "model"):
            return None
        if id(drafter) not in self._drafters:
            self._drafters[id(drafter)] = drafter.model = TimedModel(drafter.model)
        return self._drafters[id(drafter)]

    def _decode(
        self,
        method: Method,
        item: EncodedPrompt,
        max_tokens: int,
        steps: _Steps,
        drafter: TimedModel | None,
    ) -> None:
        sampling = SamplingParams(temperature=0.0, seed=0, max_tokens=max_tokens)
        sequence = self._stepper.start(method, item.token_ids, sampling)
        scheduler = self._stepper.models.scheduler
        while sequence.finished is None:
            emitted = sequence.output_tokens
            before = self._target.seconds, *_spent(drafter)
            started = time.perf_counter()
            scheduler.round()
            seconds = time.perf_counter() - started
            if emitted:
                steps.tokens += sequence.output_tokens - emitted
                after = self._target.seconds, *_spent(drafter)
                steps.seconds.append(seconds)
                steps.target.append(after[0] - before[0])
                steps.drafter.append(after[1] - before[1])
                steps.drafts += int(after[2] - before[2])

    def _figures(self, method: Method, steps: _Steps, bandwidth: float) -> dict[str, Any]:
        count = len(steps.seconds)
        drafts = steps.drafts / count
        read = float(self._bytes("target"))
        if drafts:
            read += drafts * self._bytes(_part(method))
        step = statistics.median(steps.seconds)
        inside = sum(steps.target) + sum(steps.drafter)
        return {
            "steps": count,
            "tokens_per_step": steps.tokens / count,
            "step_ms": 1e3 * step,
            "target_forward_ms": 1e3 * statistics.median(steps.target),
            "drafter_forwards_ms": 1e3 * statistics.median(steps.drafter),
            "drafter_forwards": drafts,
            "outside_forward_share": 1.0 - inside / sum(steps.seconds),
            "bytes_per_step": read,
            "bandwidth_gb_s": bandwidth / 1e9,
            "limit_ms": 1e3 * read / bandwidth,
            "over_limit": step * bandwidth / read,
        }

    def _bytes(self, part: str) -> int:
        """Bytes of a part's weights as the engine holds them; a tied LM head is read once."""
        dtype, folder = self._config.dtype, self._bundle.part(part)
        if dtype in ("int8", "q4") and part != "target":
            dtype = "float32"  # drafters are not rounded
        packed = read_header(folder / PACKED) if dtype == "q4" else {}
        whole = [one for name, one in stored_tensors(folder).items() if name not in packed]
        return sum(_held_bytes(tensor, dtype) for tensor in whole) + sum(
            tensor.bytes for tensor in packed.values()
        )

    def _operators(
        self, method: Method, item: EncodedPrompt, max_tokens: int, drafter: TimedModel | None
    ) -> list[dict[str, Any]]:
        steps = _Steps()
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            self._decode(method, item, max_tokens, steps, drafter)
        rounds = len(steps.seconds) + 1
        events = sorted(profiler.key_averages(), key=lambda e: -e.self_cpu_time_total)
        return [
            {
                "operator": event.key,
                "calls": event.count / rounds,
                "microseconds": event.self_cpu_time_total / rounds,
            }
            for event in events[:OPERATORS]
        ]


def _spent(drafter: TimedModel | None) -> tuple[float, int]:
    return (drafter.seconds, drafter.forwards) if drafter is not None else (0.0, 0)


def _part(method: Method) -> str:
    return str(method.spec.settings.get("drafter", {}).get("part", "draft"))


def _held_bytes(stored: StoredTensor, dtype: str) -> int:
    """Return the bytes of a weight as arithmetic in this precision reads it."""
    narrow = dtype == "bfloat16" or (widens_float16() and stored.dtype != "F32")
    size = 1 if dtype == "int8" else 2 if narrow else 4
    return size * math.prod(stored.shape)
