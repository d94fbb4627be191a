"""Cores that a replica has for itself: claimed in processes of their own, which they pin."""

import json
import os
import subprocess
import sys

import pytest

CLAIM = """
import json, os, pathlib, sys, threading, time
from deployments.replica.placement import CoresTakenError, PinnedCores
waiting = threading.Event()
early = threading.Thread(target=waiting.wait, daemon=True)
early.start()
try:
    pinned = PinnedCores(int(sys.argv[2]), pathlib.Path(sys.argv[1]))
except CoresTakenError as error:
    print(json.dumps(str(error)), flush=True)
    sys.exit()
threads = [early.native_id, threading.get_native_id()]
seen = [list(pinned.locks), *(sorted(os.sched_getaffinity(t)) for t in threads)]
print(json.dumps(seen), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def claim(tmp_path):
    """Starts a process that claims cores; gives it and what it said. They end with the test."""
    started = []

    def make(count):
        process = subprocess.Popen(
            [sys.executable, "-c", CLAIM, str(tmp_path), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process, json.loads(process.stdout.readline())

    yield make
    for process in started:
        process.communicate(timeout=120)


def test_no_two_processes_get_the_same_core_and_all_their_threads_run_on_it(claim):
    usable = sorted(os.sched_getaffinity(0))
    claims = [claim(1)[1] for _ in usable]
    for pinned, *threads in claims:
        assert threads == [pinned, pinned], "threads from before the claim are pinned as well"
    assert sorted(core for pinned, *_ in claims for core in pinned) == usable
    _, refused = claim(1)
    assert "engine.pin_cores" in refused


def test_a_claim_ends_with_its_process(claim):
    everything = len(os.sched_getaffinity(0))
    process, _ = claim(everything)
    process.kill()
    process.wait(120)
    pinned, *_ = claim(everything)[1]
    assert len(pinned) == everything
