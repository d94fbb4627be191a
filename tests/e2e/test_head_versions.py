"""Heads are exchanged in a running service, and it decides on a canary."""

import os
import signal
from contextlib import ExitStack

import pytest
from ray.exceptions import RayError
from running_service import START_SECONDS, until
from served import service_config
from stored_heads import origin, store


@pytest.fixture(scope="module")
def service(deploy, port, tiny_bundle, tmp_path_factory):
    folder = tmp_path_factory.mktemp("versions")
    feedback = {"drafter_training": True}
    http = {"port": port}
    return deploy(service_config(folder, tiny_bundle, ("eagle3",), feedback=feedback, http=http))


def test_versions_in_service(service, tiny_bundle):
    versions = store(service.config.feedback.state_uri)
    own = tiny_bundle.part("eagle3")
    for _ in range(2):
        versions.add(own, origin())

    def drafted():
        """The versions of the present replica's answers, after more; none before its report."""
        assert service.chat(ignore_eos=True, n=8).is_success
        here = service.method("eagle3", "placement")["replica"]
        loads = [load for load in service.routing()["loads"] if load["replica"] == here]
        return {counts["version"] for load in loads for counts in load["heads"]}

    with ExitStack() as stack:
        running = service.stream(stack, "tiny:eagle3", max_tokens=100)
        next(running)
        versions.promote(1)
        until(lambda: 1 in drafted())
        assert [*running][-1] == "data: [DONE]"
    # The feedback actor was told: the profile's evidence is of another head.
    until(lambda: service.routing()["live_profile_share"]["eagle3"] < 1.0)

    versions.try_out(2, 0.5)
    until(lambda: drafted() >= {1, 2})
    # Equal heads take MOST_ANSWERS of the canary's answers, which a busy machine gives slowly.
    until(lambda: drafted() and not versions.in_force().canaries, START_SECONDS)
    number = versions.in_force().number("eagle3")
    assert number in (1, 2)  # they have the same weights

    pid = service.method("eagle3", "placement")["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: _pid(service) not in (None, pid), START_SECONDS)
    until(lambda: number in drafted())


def _pid(service):
    """The replica's process, None while there is none."""
    try:
        return service.method("eagle3", "placement")["pid"]
    except RayError:
        return None
