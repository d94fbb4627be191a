"""Two replicas of one method: the one with the fewest outstanding tokens takes the next prompt."""

import concurrent.futures

import pytest
from ray import serve
from running_service import until
from served import service_config

from deployments.run import APPLICATION
from router.replica_loads import MOST_SLOWER

LONG = 400
SHORT = int(LONG / 6 / MOST_SLOWER) - 1
"""Six of them are less work than the long one, however slow their replica is measured to be."""


@pytest.fixture(scope="module")
def service(deploy, port, tiny_bundle, tmp_path_factory):
    """Plain decoding, on two replicas that are slow enough to look at."""
    folder = tmp_path_factory.mktemp("balance")
    config = service_config(folder, tiny_bundle, ("naive",), http={"port": port})
    twice = config.methods[0].model_copy(update={"min_replicas": 2, "max_replicas": 2})
    made = deploy(config.model_copy(update={"methods": (twice,)}))
    until(lambda: len(made.routing()["loads"]) == 2, 120)
    slow_down(400)
    return made


def slow_down(extra):
    handle = serve.get_deployment_handle("naive", APPLICATION)
    handle.broadcast("set_extra_target_forwards", "naive", extra).results(timeout_s=30)


def running(service):
    return {load["replica"]: load["running"] for load in service.routing()["loads"]}


def test_tokens_are_balanced_not_requests(service):
    with concurrent.futures.ThreadPoolExecutor(7) as pool:
        answers = [pool.submit(service.chat, max_tokens=LONG, ignore_eos=True)]
        try:
            until(lambda: sum(running(service).values()) == 1)
            [busy] = [replica for replica, count in running(service).items() if count]
            for _ in range(6):
                answers.append(pool.submit(service.chat, max_tokens=SHORT, ignore_eos=True))
            until(lambda: sum(running(service).values()) == 7)
            counts = running(service)
        finally:
            slow_down(0)
        assert counts.pop(busy) == 1, "one prompt, but many times the tokens"
        assert list(counts.values()) == [6]
        assert [answer.result().status_code for answer in answers] == [200] * 7
