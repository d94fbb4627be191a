"""Replicas that end: those that are well have time for their answers, those that are ill none."""

import os
import signal
import time
from contextlib import ExitStack, suppress

import psutil
import pytest
from ray import serve
from running_service import START_SECONDS, until
from served import service_config

from deployments.run import APPLICATION

RAY_SECONDS = 20.0
"""What Ray Serve gives the answers of a replica that ends where nobody says otherwise."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def service(deploy, port, tiny_bundle, tmp_path_factory):
    """Plain decoding on most of the CPUs, so that there is no room for two; replicas that end may
    have an hour for their answers."""
    folder = tmp_path_factory.mktemp("ending")
    http = {"port": port, "ingress_drain_seconds": 3600}
    config = service_config(folder, tiny_bundle, ("naive",), http=http)
    [naive] = config.methods
    naive = naive.model_copy(update={"num_cpus": 3.0, "drain_seconds": 3600.0})
    return deploy(config.model_copy(update={"methods": (naive,)}))


def test_an_ill_replica_leaves_its_cpus_to_the_next_at_once(service):
    pid = service.method("naive", "placement")["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: not psutil.pid_exists(pid), START_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    until(lambda: service.chat().is_success, START_SECONDS)


def test_an_answer_outlives_the_end_of_its_service(service):
    """Last: nothing is left to ask afterwards."""
    slow, fields = 200, {"logprobs": True, "max_tokens": 400}
    service.method("naive", "set_extra_target_forwards", "naive", slow)
    forward = service.step_seconds("tiny") / slow
    # four times as long as has to be outlived, on this machine
    step = 4.0 * RAY_SECONDS / fields["max_tokens"]
    service.method("naive", "set_extra_target_forwards", "naive", int(step / forward))
    with ExitStack() as stack:
        lines = service.stream(stack, "tiny", **fields)
        next(lines)
        serve.delete(APPLICATION, _blocking=False)
        until(lambda: serve.status().applications[APPLICATION].status == "DELETING")
        told = time.monotonic()
        later = [line for line in lines if time.monotonic() - told > 1.5 * RAY_SECONDS]
    assert later[-1] == "data: [DONE]"
    assert '"finish_reason":"length"' in later[-2].replace(" ", "")
