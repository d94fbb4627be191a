"""Routing learns on a real Ray Serve that replays a small recording."""

from itertools import cycle

import pytest
from replayed import KINDS, replay_config
from running_service import HTTP, START_SECONDS, pids, throttled, until

pytestmark = pytest.mark.slow

SAYS = "recording, slowed down 2 times"
KNOWN = ("code", "weather")
FIRST, SECOND = "draft_verify", "ngram"
"""The best method of the known prompts, and the best one while it is half as fast."""


@pytest.fixture(scope="module")
def service(deploy, port, tiny_bundle, tmp_path_factory):
    """Two replicas of the best method, one of each other; none computes."""
    settings = {
        "methods": [
            {"name": name, "num_cpus": 0, "min_replicas": count, "max_replicas": count}
            for name, count in {"naive": 1, FIRST: 2, SECOND: 1}.items()
        ],
        # slow enough for the seconds of HTTP to be few beside the engine's on a busy machine
        "engine": {"replay_slowdown": 2.0},
        "http": {"port": port},
    }
    folder = tmp_path_factory.mktemp("learning")
    made = deploy(replay_config(folder, tiny_bundle, KNOWN, settings))
    made.forget()
    return made


def ask(service, text, **fields):
    answer = service.chat(text, max_tokens=25, temperature=0, **fields)
    assert answer.is_success, answer.text
    return answer


def share(service, method, prompts=12):
    """Return the share of known prompts that `method` answers."""
    texts = [KINDS[kind].format(2 + i) for i, kind in zip(range(prompts), cycle(KNOWN))]
    answers = [ask(service, text) for text in texts]
    until(lambda: service.routing()["feedback"]["observations_waiting"] == 0)
    return sum(a.headers["x-specadapt-method"] == method for a in answers) / prompts


def test_a_replay_says_so_and_refuses_what_was_not_recorded(service):
    answer = ask(service, KINDS["code"].format(2))
    assert answer.headers["x-specadapt-replay"] == SAYS
    assert answer.headers["x-specadapt-method"] == FIRST
    health = HTTP.get(f"{service.url}/health")
    assert health.headers["x-specadapt-replay"] == SAYS
    refused = service.chat("something else", temperature=0)
    assert refused.status_code == 400
    assert "no recorded answer" in refused.json()["error"]["message"]


def test_traffic_leaves_a_method_that_is_slower_and_comes_back(service):
    replicas = until(lambda: len(found := pids(FIRST)) == 2 and found)
    until(lambda: share(service, FIRST) > 0.7, seconds=START_SECONDS)
    with throttled(replicas, 0.2):
        until(lambda: share(service, FIRST) < 0.4, seconds=START_SECONDS)
    until(lambda: share(service, FIRST) > 0.7, seconds=START_SECONDS)
