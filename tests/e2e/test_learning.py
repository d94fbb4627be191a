"""Routing learns on a real Ray Serve with fake engines."""

from itertools import cycle

import pytest
from running_service import START_SECONDS, pids, throttled, until
from served import TOPICS, service_config

from schemas import AppConfig

pytestmark = pytest.mark.slow

FIRST, SECOND = "draft_verify", "ngram"
"""The best method, and the best one while it is half as fast."""
STEP_SECONDS = 0.02
"""Slow enough that HTTP takes little of a request's time, even on a busy machine."""


@pytest.fixture(scope="module")
def service(deploy, port, tiny_bundle, tmp_path_factory):
    """Two replicas of the best method, one of each other; none computes."""
    settings = {
        "methods": [
            {"name": name, "num_cpus": 0, "min_replicas": count, "max_replicas": count}
            for name, count in {"naive": 1, FIRST: 2, SECOND: 1}.items()
        ],
        "router": {"exploration": AppConfig().router.exploration},
        "http": {"port": port},
    }
    folder = tmp_path_factory.mktemp("learning")
    config = service_config(folder, tiny_bundle, step_seconds=STEP_SECONDS, **settings)
    return deploy(config, STEP_SECONDS)


def share(service, method, prompts=12):
    """Return the share of prompts that `method` answers."""
    texts = [text for _, text in zip(range(prompts), cycle(TOPICS), strict=False)]
    answers = [service.chat(text, max_tokens=25, temperature=0) for text in texts]
    assert all(answer.is_success for answer in answers)
    until(lambda: service.routing()["feedback"]["observations_waiting"] == 0)
    return sum(answer.headers["x-specadapt-method"] == method for answer in answers) / prompts


def test_traffic_leaves_a_method_that_is_slower_and_comes_back(service):
    replicas = until(lambda: len(found := pids(FIRST)) == 2 and found)
    until(lambda: share(service, FIRST) > 0.7, seconds=START_SECONDS)
    with throttled(replicas, 0.2):
        until(lambda: share(service, FIRST) < 0.4, seconds=START_SECONDS)
    until(lambda: share(service, FIRST) > 0.7, seconds=START_SECONDS)
