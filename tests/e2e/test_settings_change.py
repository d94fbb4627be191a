"""Settings that change under a running service, by Ray Serve's declarative configuration: what
`serve deploy` and KubeRay hand to Ray."""

import httpx
import pytest
from ray import serve
from ray.serve.context import _get_global_client
from ray.serve.schema import ServeDeploySchema
from running_service import CALL_SECONDS, START_SECONDS, until
from served import service_config

NAME = "live"


def declared(config, user_config):
    """A Ray Serve configuration of two methods that take no CPU of the others'."""
    application = {
        "name": NAME,
        "route_prefix": "/live",
        "import_path": "deployments.app:build",
        "args": config.model_dump(mode="json"),
        "deployments": [{"name": "ingress", "user_config": user_config}],
    }
    return ServeDeploySchema.model_validate({"applications": [application]})


@pytest.fixture(scope="module")
def service(deploy, port, tiny_bundle, tmp_path_factory):  # noqa: ARG001 - its Ray is used
    config = service_config(
        tmp_path_factory.mktemp("live"), tiny_bundle, ("naive", "ngram"), http={"port": port}
    )
    free = [method.model_copy(update={"num_cpus": 0.0}) for method in config.methods]
    http = config.http.model_copy(update={"ingress_num_cpus": 0.0})
    config = config.model_copy(update={"methods": tuple(free), "http": http})
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    client = _get_global_client()
    url = f"http://127.0.0.1:{port}/live"

    def settings(user_config):
        client.deploy_apps(declared(config, user_config))

    def ready():
        try:
            health = httpx.get(f"{url}/health", timeout=CALL_SECONDS)
        except httpx.ConnectError:
            return False
        return health.is_success and len(health.json()["methods"]) == 2

    settings({"router": {"exploration": 0.0}})
    until(ready, START_SECONDS)
    yield url, settings
    client.delete_apps([NAME])


def born(url):
    """When the ingress that answers was started."""
    return httpx.get(f"{url}/v1/models", timeout=CALL_SECONDS).json()["data"][0]["created"]


def in_force(url):
    return httpx.get(f"{url}/v1/routing", timeout=CALL_SECONDS).json()["settings"]


def ask(url, **fields):
    body = {"messages": [{"role": "user", "content": "Write a Python function"}], "max_tokens": 8}
    url = f"{url}/v1/chat/completions"
    return httpx.post(url, json={"model": "tiny", **body, **fields}, timeout=CALL_SECONDS)


def test_settings_change_without_a_request_being_lost(service):
    url, settings = service
    before = born(url)
    body = {"messages": [{"role": "user", "content": "Go on"}], "max_tokens": 300, "stream": True}
    body |= {"model": "tiny:naive", "ignore_eos": True, "stream_options": {"include_usage": True}}
    with httpx.stream(
        "POST", f"{url}/v1/chat/completions", json=body, timeout=CALL_SECONDS
    ) as stream:
        lines = (line for line in stream.iter_lines() if line.startswith("data: "))
        next(lines)
        settings({"router": {"weights": {"naive": 0.0}, "half_life": 7}})
        until(lambda: in_force(url)["router"]["half_life"] == 7.0)
        rest = list(lines)
    assert rest[-1] == "data: [DONE]", "an answer in progress goes on"
    assert '"completion_tokens":300' in "".join(rest).replace(" ", "")
    assert {ask(url).headers["x-specadapt-method"] for _ in range(5)} == {"ngram"}
    named = ask(url, model="tiny:naive")
    assert named.headers["x-specadapt-method"] == "naive", "the same replica, for those who name it"

    settings({"router": {"pinned_clusters": {0: "naive", 1: "naive"}}})
    until(lambda: in_force(url)["router"]["pinned_clusters"])
    answer = ask(url)
    assert answer.headers["x-specadapt-method"] == "naive"
    assert answer.headers["x-specadapt-reason"] == "pinned_cluster"
    assert in_force(url)["router"]["half_life"] == 50.0, "what is left out is as configured"
    assert born(url) == before, "nothing was started again"


def test_wrong_settings_are_refused_and_the_service_lives_on(service):
    url, settings = service
    settings({"router": {"weights": {"nobody": 1.0}}})
    refused = until(lambda: in_force(url)["refused"])
    assert refused.startswith("router.weights: 'nobody' is not served")
    assert ask(url).is_success
    settings({"router": {"exploration": 0.25}})
    until(lambda: in_force(url)["router"]["exploration"] == 0.25)
    assert in_force(url)["refused"] is None
