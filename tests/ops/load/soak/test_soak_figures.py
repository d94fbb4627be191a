"""What a soak says, of samples with known contents."""

import pytest

from ops.harness.processes import Process
from ops.load.soak.figures import figures_of
from ops.load.soak.samples import Held, Sample

REPLICA = Process("naive", "abc", 10)
PROXY = Process("proxy", "", 11)


def sample(at, megabytes, *others):
    held = {REPLICA: Held(megabytes, 20, 8), PROXY: Held(100.0, 30, 4)}
    return Sample(at, held | dict(others), {"naive": 3, "ingress": 5})


IDLE = (sample(0.0, 1.0), sample(0.0, 1.0))


def test_the_first_and_the_last_tenth_after_the_warm_up_are_compared():
    growing = [sample(float(at), 200.0 + at) for at in range(0, 300, 10)]
    figures = figures_of(growing, 100.0, IDLE)
    [naive, proxy] = figures["processes"]
    # 20 samples from 100 s on: two of them at either end
    assert naive["memory_mb"] == (305.0, 485.0)
    assert naive["growth"] == pytest.approx(485 / 305 - 1)
    assert (proxy["role"], proxy["growth"]) == ("proxy", 0.0)
    assert figures["growth"] == pytest.approx(585 / 405 - 1)
    assert naive["handles"] == (20.0, 20.0)
    assert figures["replaced"] == 0
    assert figures["timeline"][0] == {"at": 0.0, "memory_mb": {"naive": 200.0, "proxy": 100.0}}


def test_processes_that_came_or_went_are_counted_and_left_out():
    passing = (Process("naive", "def", 12), Held(900.0, 1, 1))
    samples = [sample(0.0, 200.0, passing), sample(10.0, 200.0), sample(20.0, 200.0)]
    figures = figures_of(samples, 0.0, IDLE)
    assert [row["role"] for row in figures["processes"]] == ["naive", "proxy"]
    assert (figures["growth"], figures["replaced"]) == (0.0, 1)


def test_what_is_held_with_nothing_to_do():
    leaked = (Process("feedback", "", 13), Held(50.0, 7, 2))
    after = sample(0.0, 300.0, leaked)
    after.tasks["naive"] = 9
    idle = figures_of([sample(0.0, 1.0), sample(9.0, 1.0)], 0.0, (IDLE[0], after))["idle"]
    assert idle["tasks"] == ({"naive": 3, "ingress": 5}, {"naive": 9, "ingress": 5})
    assert idle["handles"] == (50, 57)
    assert idle["threads"] == (12, 14)
    assert idle["processes"][1] - idle["processes"][0] == {"feedback": 1}


def test_a_warm_up_that_leaves_nothing_is_said():
    with pytest.raises(ValueError, match="1 samples after a warm-up"):
        figures_of([sample(0.0, 1.0), sample(9.0, 1.0)], 5.0, IDLE)
