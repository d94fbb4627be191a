"""How long a forward took, without waiting for it."""

import time
from typing import Any

import torch


class Stopwatch:
    """Seconds of the work between `start` and `stop`, on the clock of the device that does it.

    A GPU's kernels run behind Python, so the host's clock would see their launch only, or would
    have to wait for them. There the stream itself notes when it passes both marks.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._marks: list[Any] = [0.0, 0.0]
        if self._cuda:
            event: Any = torch.cuda.Event
            self._marks = [event(enable_timing=True) for _ in range(2)]

    def start(self) -> None:
        """The work begins."""
        self._note(0)

    def stop(self) -> None:
        """All of the work has been handed to the device."""
        self._note(1)

    def seconds(self) -> float:
        """To be asked once results of the work have been read; before that it waits for them."""
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
