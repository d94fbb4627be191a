"""A stopwatch on the device's clock."""

import time
from typing import Any

import torch


class Stopwatch:
    """Measure the work between `start` and `stop` on the device's clock.

    A GPU's kernels run after their launch, so there the stream records when it passes both
    marks.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._marks: list[Any] = [0.0, 0.0]
        if self._cuda:
            event: Any = torch.cuda.Event
            self._marks = [event(enable_timing=True) for _ in range(2)]

    def start(self) -> None:
        """Mark the beginning of the work."""
        self._note(0)

    def stop(self) -> None:
        """Mark the end, once all work has been launched."""
        self._note(1)

    def seconds(self) -> float:
        """Return the seconds; waits for the work if its results have not been read."""
        begin, end = self._marks
        if not self._cuda:
            return float(end - begin)
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3

    def _note(self, mark: int) -> None:
        if self._cuda:
            self._marks[mark].record()
        else:
            self._marks[mark] = time.perf_counter()
