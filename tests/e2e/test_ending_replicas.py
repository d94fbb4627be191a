"""Replicas that end: those that are well have time for their answers, those that are ill none."""

import os
import signal
import time
from contextlib import ExitStack, suppress

import psutil
import pytest
from ray import serve
from running_service import START_SECONDS, pids, throttled, until
from served import METHODS, service_config

from deployments.run import APPLICATION

RAY_SECONDS = 20.0
"""What Ray Serve gives the answers of a replica that ends where nobody says otherwise."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def config(port, tiny_bundle, tmp_path_factory):
    """Four methods with a GPU each, which are all there are, so that there is no room for a fifth
    replica; replicas that end may have an hour for their answers."""
    folder = tmp_path_factory.mktemp("ending")
    config = service_config(folder, tiny_bundle, (*METHODS, "suffix"), http={"port": port})
    pinned = {"num_cpus": 0.25, "num_gpus": 1.0, "drain_seconds": 3600.0}
    methods = tuple(method.model_copy(update=pinned) for method in config.methods)
    return config.model_copy(update={"methods": methods})


@pytest.fixture
def service(deploy, config):
    """For each test, since one of them ends it."""
    return deploy(config)


def test_an_ill_replica_leaves_its_gpu_to_the_next_at_once(service):
    pid = service.method("naive", "placement")["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: not psutil.pid_exists(pid), START_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    until(lambda: service.chat(model="tiny:naive").is_success, START_SECONDS)


def test_an_answer_outlives_the_end_of_its_service(service):
    fields = {"logprobs": True, "max_tokens": 400}
    # So slow that it would take ten times as long as Ray Serve gives: then it is let go.
    share = service.step_seconds("tiny:naive", 100) * fields["max_tokens"] / (10.0 * RAY_SECONDS)
    with ExitStack() as stack:
        slow = stack.enter_context(ExitStack())
        slow.enter_context(throttled(pids("naive"), min(share, 1.0), period=1.0))
        lines = service.stream(stack, "tiny:naive", **fields)
        next(lines)
        serve.delete(APPLICATION, _blocking=False)
        until(lambda: serve.status().applications[APPLICATION].status == "DELETING")
        told = time.monotonic()
        while time.monotonic() - told < 1.5 * RAY_SECONDS:
            assert '"finish_reason":null' in next(lines).replace(" ", "")
        slow.close()
        *_, last, done = lines
    serve.delete(APPLICATION)  # until it is gone
    assert '"finish_reason":"length"' in last.replace(" ", "")
    assert done == "data: [DONE]"
