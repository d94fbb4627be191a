"""Computations in static shapes: run as they are or, on CUDA, captured once and replayed."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from workers.torch_engine.models.transfer import staged

log = logging.getLogger(__name__)

DEVICES = frozenset({"cuda"})
"""Types of device on which launching operators takes longer than computing some padding."""
RECURRING = 3
"""Times that a shape is asked for until it is captured. A capture takes as long as several runs and
everybody waits for it, and many shapes, of prompts above all, do not come back."""
GIVE_UP = 8
"""Captures that failed in a row after which no other is tried: each holds everybody up."""
MOST = 256
"""Shapes that a model keeps; of more the one that was not asked for the longest goes."""

Outputs = TypeVar("Outputs")
_capturing = threading.Lock()
"""CUDA takes one capture at a time in a process."""


@dataclass(slots=True)
class _Shape:
    """Static inputs, how often they were used, and the graph with its static outputs once it is
    captured."""

    inputs: list[Tensor]
    uses: int = 0
    graph: torch.cuda.CUDAGraph | None = None
    outputs: Any = None


class StaticSteps:
    """What one model computes in static shapes, on the thread that it belongs to.

    All of its graphs share their memory: a replay overwrites what the one before it computed.
    captured: graphs so far. failed: captures that failed since the last one that did not.
    """

    def __init__(self, device: torch.device) -> None:
        self.captured = self.failed = 0
        self._device = device
        self._graphs = device.type == "cuda"
        self._shapes: OrderedDict[Hashable, _Shape] = OrderedDict()
        if self._graphs:
            self._memory = torch.cuda.graph_pool_handle()
            self._aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def run(
        self,
        key: Hashable,
        inputs: Sequence[tuple[Tensor, int]],
        compute: Callable[..., Outputs],
    ) -> Outputs:
        """compute(*static inputs), which is to be read or copied before the next run.

        key: equal where `compute` launches the same operators on the same memory. inputs: tensors
        [n, ...] on the host or the device, each with the number that it is padded to; what stands
        in the padding is of an earlier run, or 0.
        """
        shape = self._shape_of(key, inputs)
        for buffer, (given, _) in zip(shape.inputs, inputs, strict=True):
            buffer[: len(given)].copy_(staged(given, self._device), non_blocking=True)
        shape.uses += 1
        if self._graphs and shape.uses == RECURRING and self.failed < GIVE_UP:
            self._try_to_capture(shape, compute)
        if shape.graph is None:
            return compute(*shape.inputs)
        shape.graph.replay()
        outputs: Outputs = shape.outputs
        return outputs

    def _shape_of(self, key: Hashable, inputs: Sequence[tuple[Tensor, int]]) -> _Shape:
        if key not in self._shapes:
            if len(self._shapes) == MOST:
                self._shapes.popitem(last=False)
            buffers = [
                given.new_zeros((size, *given.shape[1:]), device=self._device)
                for given, size in inputs
            ]
            self._shapes[key] = _Shape(buffers)
        self._shapes.move_to_end(key)
        return self._shapes[key]

    def _try_to_capture(self, shape: _Shape, compute: Callable[..., object]) -> None:
        """A shape that cannot be captured runs as it is; others may be captured."""
        try:
            self._capture(shape, compute)
            self.failed = 0
        except Exception:
            self.failed += 1
            log.warning("a CUDA graph could not be captured", exc_info=True)
            if self.failed == GIVE_UP:
                log.warning("no more CUDA graphs: %d in a row could not be captured", GIVE_UP)

    def _capture(self, shape: _Shape, compute: Callable[..., object]) -> None:
        """Run it beside the stream that is in use, where libraries allocate what they need there,
        then once more to record its operators."""
        stream, graph = torch.cuda.current_stream(self._device), torch.cuda.CUDAGraph()
        try:
            with _capturing:
                self._aside.wait_stream(stream)
                with torch.cuda.stream(self._aside):
                    compute(*shape.inputs)
                stream.wait_stream(self._aside)
                # other threads may allocate meanwhile: only this one's doings can spoil it
                with torch.cuda.graph(graph, self._memory, self._aside, "thread_local"):
                    outputs = compute(*shape.inputs)
        finally:
            # a capture that fails leaves its own stream behind
            torch.cuda.set_stream(stream)
        shape.graph, shape.outputs = graph, outputs
        self.captured += 1


def steps_on(device: torch.device) -> StaticSteps | None:
    """Where forwards run in static shapes at all."""
    return StaticSteps(device) if device.type in DEVICES else None
