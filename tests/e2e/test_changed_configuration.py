"""`args` that change while clients ask: nobody notices."""

import httpx
import pytest
import ray
from ray import serve
from ray.serve.context import _get_global_client
from ray.serve.schema import ServeDeploySchema
from running_service import CALL_SECONDS, HTTP, START_SECONDS, until
from served import service_config
from steady_clients import Clients

from schemas import AppConfig

NAME = "changing"
METHODS = ("naive", "ngram")
ROUTED = [{}, {"stream": True}]
PINNED = [{"model": f"tiny:{name}"} for name in METHODS]


@pytest.fixture
def service(deploy, port, tiny_bundle, tmp_path):  # noqa: ARG001 - its Ray is used
    """A declared application's first configuration, its address, and what changes it."""
    http = {"port": port, "ingress_num_cpus": 0.0}
    config = service_config(tmp_path, tiny_bundle, METHODS, http=http)
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    client, url = _get_global_client(), f"http://127.0.0.1:{port}/{NAME}"

    def declare(config, **resources):
        methods = [
            method | {"num_cpus": 0.0} | resources for method in config.model_dump()["methods"]
        ]
        application = {
            "name": NAME,
            "route_prefix": f"/{NAME}",
            "import_path": "deployments.app:build",
            "args": changed(config, methods=methods).model_dump(mode="json"),
        }
        client.deploy_apps(ServeDeploySchema.model_validate({"applications": [application]}))
        until(lambda: hosted(url) == set(METHODS), START_SECONDS)

    yield config, url, declare
    client.delete_apps([NAME])


def hosted(url):
    try:
        health = HTTP.get(f"{url}/health")
    except httpx.TransportError:  # until there is an ingress
        return None
    return set(health.json()["methods"]) if health.is_success else None


def changed(config, **sections):
    body = config.model_dump()
    for name, values in sections.items():
        body[name] = body[name] | values if isinstance(values, dict) else values
    return AppConfig.model_validate(body)


def running(url):
    """What answers: when the ingress was started, and for each method a replica that reports."""
    loads = HTTP.get(f"{url}/v1/routing").json()["loads"]
    born = HTTP.get(f"{url}/v1/models").json()["data"][0]["created"]
    return {"ingress": born} | {name: one["replica"] for one in loads for name in one["methods"]}


def replaced(url, before):
    now = running(url)
    return now.keys() == before.keys() and not set(now.values()) & set(before.values())


def in_force(url):
    return HTTP.get(f"{url}/v1/routing").json()["settings"]


@pytest.mark.slow
def test_args_change_while_clients_ask(service):
    config, url, declare = service
    declare(config)
    first = running(url)
    with Clients(url, ROUTED + PINNED) as clients:
        config = changed(config, router={"exploration": 0.25}, http={"max_answer_seconds": 40.0})
        declare(config)
        until(lambda: in_force(url)["router"]["exploration"] == 0.25)
        assert in_force(url)["http"]["max_answer_seconds"] == 40.0
        until(lambda: running(url) == first)  # nothing was started again

        config = changed(config, router={"refit": False, "exploration": 0.125})
        declare(config)
        until(lambda: running(url)["ingress"] > first["ingress"], START_SECONDS)
        assert in_force(url)["router"]["exploration"] == 0.125
        second = first | {"ingress": running(url)["ingress"]}
        until(lambda: running(url) == second)

        declare(changed(config, engine={"max_waiting": 65}))
        until(lambda: replaced(url, second), START_SECONDS)
        until(lambda: serve.status().applications[NAME].status == "RUNNING", START_SECONDS)
    print(f"{len(clients.seconds)} requests, the slowest took {max(clients.seconds):.1f} s")
    assert clients.failed == []


@pytest.mark.slow
def test_methods_take_turns_where_every_gpu_is_taken(service):
    """As if the cluster had one GPU, which the replicas share by halves."""
    config, url, declare = service
    declare(config, num_gpus=0.5)
    free = until(lambda: ray.available_resources().get("GPU", 0.0))
    others = ray.util.placement_group([{"GPU": free}])
    try:
        assert others.wait(CALL_SECONDS)
        first = running(url)
        with Clients(url, ROUTED + PINNED) as clients:
            declare(changed(config, engine={"max_waiting": 65}), num_gpus=0.5)
            until(lambda: replaced(url, first), 2 * START_SECONDS)
        print(f"{len(clients.seconds)} requests, the slowest took {max(clients.seconds):.1f} s")
        assert [failure for failure in clients.failed if failure[0] in ROUTED] == []
        assert {failure[1] for failure in clients.failed} <= {503}, "while the method is away"
    finally:
        ray.util.remove_placement_group(others)
