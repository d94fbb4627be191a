"""Run computations in static shapes; on CUDA, capture them once and replay them."""

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
"""Types of device on which launching operators takes longer than computing padding."""
RECURRING = 3
"""Uses of a shape after which it is captured. A capture takes as long as several runs and delays
all requests, and many shapes, above all those of prompts, do not recur."""
GIVE_UP = 8
"""Failed captures in a row after which no other is tried: each delays all requests."""
MOST = 256
"""Shapes that a model keeps; beyond them the least recently used one is dropped."""

Outputs = TypeVar("Outputs")
_capturing = threading.Lock()
"""CUDA takes one capture at a time in a process."""


@dataclass(slots=True)
class _Shape:
    """Static inputs, the number of their uses, and the captured graph with its static outputs."""

    inputs: list[Tensor]
    uses: int = 0
    graph: torch.cuda.CUDAGraph | None = None
    outputs: Any = None


class StaticSteps:
    """Run one model's computations in static shapes, on the model's thread.

    All graphs share their memory: a replay overwrites the results of the one before. captured:
    number of graphs. failed: captures that failed since the last success.
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
        """Return compute(*static inputs). Copy the result before the next run.

        key: equal keys launch the same operators on the same memory. inputs: tensors [n, ...] on
        the host or the device, each with the length that it is padded to. Padding holds values of
        an earlier run, or 0.
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
        """Capture a shape. If that fails, the shape runs eagerly and others may be captured."""
        try:
            self._capture(shape, compute)
            self.failed = 0
        except Exception:
            self.failed += 1
            log.warning("a CUDA graph could not be captured", exc_info=True)
            if self.failed == GIVE_UP:
                log.warning("no more CUDA graphs: %d in a row could not be captured", GIVE_UP)

    def _capture(self, shape: _Shape, compute: Callable[..., object]) -> None:
        """Run the shape on a second stream, on which libraries allocate, then record it."""
        stream, graph = torch.cuda.current_stream(self._device), torch.cuda.CUDAGraph()
        try:
            with _capturing:
                self._aside.wait_stream(stream)
                with torch.cuda.stream(self._aside):
                    compute(*shape.inputs)
                stream.wait_stream(self._aside)
                # thread_local: other threads may allocate during the capture.
                with torch.cuda.graph(graph, self._memory, self._aside, "thread_local"):
                    outputs = compute(*shape.inputs)
        finally:
            # A failed capture leaves its own stream current.
            torch.cuda.set_stream(stream)
        shape.graph, shape.outputs = graph, outputs
        self.captured += 1


def steps_on(device: torch.device) -> StaticSteps | None:
    """Return StaticSteps for a device on which forwards run in static shapes, else None."""
    return StaticSteps(device) if device.type in DEVICES else None
