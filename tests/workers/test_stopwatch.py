"""Whose clock a stopwatch reads. CUDA's events are stand-ins."""

import time

import pytest
import torch

from workers.stopwatch import Stopwatch


class Event:
    """An event that the device passes 40 ms after the one before."""

    passed, told = 0, []

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        Event.passed += 1
        self.at = Event.passed

    def synchronize(self) -> None:
        Event.told.append(self.at)

    def elapsed_time(self, end: "Event") -> float:
        assert end.at in Event.told, "the device may not have passed it"
        return 40.0 * (end.at - self.at)


def test_a_gpus_work_is_timed_by_its_stream(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Event", Event)
    watch = Stopwatch(torch.device("cuda"))
    watch.start()
    watch.stop()
    assert watch.seconds() == pytest.approx(0.04)


def test_a_cpus_work_is_timed_by_the_wall_clock(monkeypatch):
    monkeypatch.setattr(time, "perf_counter", iter([3.0, 3.5]).__next__)
    watch = Stopwatch(torch.device("cpu"))
    watch.start()
    watch.stop()
    assert watch.seconds() == 0.5
