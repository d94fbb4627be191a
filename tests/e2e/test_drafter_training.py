"""A running service keeps answers for training, exchanges heads and decides on a canary."""

import os
import signal
from contextlib import ExitStack

import pytest
import ray
from ray.exceptions import RayError
from running_service import START_SECONDS, until
from stored_heads import origin, store

from deployments.head_training.actor import head_training_actor
from deployments.head_training.samples import SampleStore
from deployments.run import APPLICATION
from workers.weight_files import target_hash


def test_answers_are_stored_also_after_the_actor_has_died(service):
    def stored():
        uri = f"{service.config.feedback.state_uri}/drafters/tiny/samples"
        return {len(each.answer_token_ids) for each in SampleStore(uri).read_new()}

    def ask(tokens, **fields):
        assert service.chat(max_tokens=tokens, ignore_eos=True, **fields).is_success

    # No other test's answers have these lengths.
    ask(41)
    ask(42, store=False)
    ask(43)
    until(lambda: {41, 43} <= stored(), START_SECONDS)  # the actor starts first
    actor = head_training_actor(APPLICATION, service.config)
    ray.kill(actor, no_restart=False)
    ask(44)
    until(lambda: {41, 43, 44} <= stored(), START_SECONDS)
    assert 42 not in stored()


@pytest.fixture(scope="module")
def versions(service, tiny_bundle):
    """A store of two versions with the weights of the bundle's head."""
    versions = store(service.config.feedback.state_uri, target=target_hash(tiny_bundle))
    for _ in range(2):
        versions.add(tiny_bundle.part("eagle3"), origin())
    return versions


def drafted(service):
    """The versions of the present replica's answers, after more; none before its report."""
    answer = service.chat(model="tiny:eagle3", ignore_eos=True, n=8)
    if answer.status_code == 503:  # a replica that has just started
        return set()
    assert answer.is_success, answer.text
    here = service.method("eagle3", "placement")["replica"]
    loads = [load for load in service.routing()["loads"] if load["replica"] == here]
    return {counts["version"] for load in loads for counts in load["heads"]}


def test_a_version_in_service(service, versions):
    before = service.routing()["version"]
    with ExitStack() as stack:
        running = service.stream(stack, "tiny:eagle3", max_tokens=100)
        next(running)
        versions.promote(1)
        until(lambda: 1 in drafted(service))
        assert [*running][-1] == "data: [DONE]"
    # The feedback actor was told: the profile's evidence is of another head.
    until(lambda: service.routing()["version"] > before)

    pid = service.method("eagle3", "placement")["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: _pid(service) not in (None, pid), START_SECONDS)
    until(lambda: 1 in drafted(service))


@pytest.mark.slow
def test_a_canary_is_decided_upon(service, versions):
    versions.promote(1)
    # Equal heads take MOST_ANSWERS of the canary's answers.
    versions.try_out(2, 0.8)
    until(lambda: drafted(service) >= {1, 2})
    # A busy machine gives answers slowly.
    until(lambda: drafted(service) and not versions.in_force().canaries, START_SECONDS)
    assert versions.in_force().number("eagle3") in (1, 2)  # they have the same weights


def _pid(service):
    """The replica's process, None while there is none."""
    try:
        return service.method("eagle3", "placement")["pid"]
    except RayError:
        return None
