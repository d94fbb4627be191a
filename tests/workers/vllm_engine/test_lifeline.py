"""Processes that end with their parent, without vLLM."""

import multiprocessing
import os
import signal
import time

import psutil

from workers.vllm_engine.lifeline import TIED, end_with_parent

DEADLINE = 30.0
FOR_EVER = 2 * DEADLINE
"""What is to be killed goes on for longer than anybody waits for its end."""


def child(pids):
    end_with_parent()
    pids.put(os.getpid())
    time.sleep(FOR_EVER)


def replica(pids, tied):
    if tied:
        os.environ[TIED] = "1"
    context = multiprocessing.get_context("spawn")
    context.Process(target=child, args=(pids,), daemon=True).start()
    time.sleep(FOR_EVER)


def orphan(tied):
    """A process whose parent has been killed."""
    context = multiprocessing.get_context("spawn")
    pids = context.Queue()
    parent = context.Process(target=replica, args=(pids, tied))
    parent.start()
    left = psutil.Process(pids.get(timeout=DEADLINE))
    os.kill(parent.pid, signal.SIGKILL)
    parent.join(DEADLINE)
    return left


def test_a_killed_replica_takes_its_processes_along():
    _, alive = psutil.wait_procs([orphan(tied=True)], timeout=DEADLINE)
    assert not alive


def test_processes_of_others_are_left_alone():
    left = orphan(tied=False)
    try:
        _, alive = psutil.wait_procs([left], timeout=1.0)
        assert alive
    finally:
        left.kill()
