"""Traffic leaves a method whose engine has become slow, and comes back."""

import pytest
from running_service import START_SECONDS, until
from served import service_config

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def service(deploy, port, tiny_bundle, tmp_path_factory):
    """Learns quickly: a short memory and much exploration."""
    config = service_config(
        tmp_path_factory.mktemp("slow"),
        tiny_bundle,
        router={"exploration": 0.2, "half_life": 10.0},
        http={"port": port},
    )
    return deploy(config)


def share(service, method, prompts=12):
    """Of so many prompts, the share that `method` answered."""
    methods = [
        service.chat(f"Write a Python function {i}", max_tokens=24, temperature=0, ignore_eos=True)
        for i in range(prompts)
    ]
    until(lambda: service.routing()["feedback"]["observations_waiting"] == 0)
    return sum(r.headers["x-specadapt-method"] == method for r in methods) / prompts


def test_traffic_leaves_a_slow_method_and_comes_back(service):
    # Tiny random models are about equally fast; the others are held back, so that one is best.
    for other in ("naive", "ngram"):
        service.method(other, "set_extra_target_forwards", other, 8)
    until(lambda: share(service, "draft_verify") > 0.5, seconds=START_SECONDS)
    service.method("draft_verify", "set_extra_target_forwards", "draft_verify", 80)
    until(lambda: share(service, "draft_verify") < 0.4, seconds=START_SECONDS)
    service.method("draft_verify", "set_extra_target_forwards", "draft_verify", 0)
    until(lambda: share(service, "draft_verify") > 0.5, seconds=START_SECONDS)
