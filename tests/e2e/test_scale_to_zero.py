"""A method that keeps no replica: it gets one when it would be the fastest."""

import pytest
from running_service import HTTP, START_SECONDS, until
from served import preferring, service_config


@pytest.fixture(scope="module")
def service(deploy, port, tiny_bundle, tmp_path_factory):
    """The favourite of all prompts, which it stays whatever is learned, has no replica."""
    folder, names = tmp_path_factory.mktemp("zero"), ("naive", "draft_verify")
    settings = {"router": {"weights": preferring("draft_verify", names)}, "http": {"port": port}}
    config = service_config(folder, tiny_bundle, names, **settings)
    naive, favourite = config.methods
    asleep = favourite.model_copy(update={"min_replicas": 0})
    return deploy(config.model_copy(update={"methods": (naive, asleep)}))


@pytest.mark.slow
def test_the_favourite_is_started_while_another_answers(service):
    health = HTTP.get(f"{service.url}/health").json()
    assert health["methods"] == ["naive"]
    first = service.chat()
    assert first.headers["x-specadapt-method"] == "naive"
    assert first.headers["x-specadapt-reason"] == "starting"
    until(
        lambda: "draft_verify" in HTTP.get(f"{service.url}/health").json()["methods"],
        START_SECONDS,
    )
    until(lambda: service.chat().headers["x-specadapt-method"] == "draft_verify")
