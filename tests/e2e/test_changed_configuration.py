"""`args` that change while clients ask: nobody notices."""

import threading
import time

import pytest
from ray import serve
from ray.serve.context import _get_global_client
from ray.serve.schema import ServeDeploySchema
from running_service import CALL_SECONDS, HTTP, START_SECONDS, until
from served import service_config
from test_app import changed

NAME = "changing"
METHODS = ("naive", "ngram")


class Clients:
    """Ask again and again until the end of the block, one client for each way to ask."""

    def __init__(self, url):
        self.failed, self.seconds = [], []
        self._url, self._over = f"{url}/v1/chat/completions", threading.Event()
        ways = [{}, {"stream": True}, {"model": "tiny:naive"}, {"model": "tiny:ngram"}]
        self._threads = [threading.Thread(target=self._ask, args=(way,)) for way in ways]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, way):
        said = [{"role": "user", "content": "Write a Python function"}]
        body = {"model": "tiny", "messages": said, "max_tokens": 16} | way
        while not self._over.is_set():
            clock = time.monotonic()
            try:
                answer = HTTP.post(self._url, json=body)
                whole = answer.is_success and ("stream" not in way or "[DONE]" in answer.text)
                if not whole or '"error"' in answer.text:
                    self.failed.append((way, answer.status_code, answer.text[-300:]))
            except Exception as error:  # whatever it is, a client saw it
                self.failed.append((way, repr(error)))
            self.seconds.append(time.monotonic() - clock)


@pytest.fixture
def service(deploy, port, tiny_bundle, tmp_path):  # noqa: ARG001 - its Ray is used
    """A declared application's first configuration, its address, and what changes it."""
    http = {"port": port, "ingress_num_cpus": 0.0}
    config = service_config(tmp_path, tiny_bundle, METHODS, http=http)
    free = [method.model_copy(update={"num_cpus": 0.0}) for method in config.methods]
    config = config.model_copy(update={"methods": tuple(free)})
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    client, url = _get_global_client(), f"http://127.0.0.1:{port}/{NAME}"

    def declare(config):
        application = {
            "name": NAME,
            "route_prefix": f"/{NAME}",
            "import_path": "deployments.app:build",
            "args": config.model_dump(mode="json"),
        }
        client.deploy_apps(ServeDeploySchema.model_validate({"applications": [application]}))

    def ready():
        health = HTTP.get(f"{url}/health")
        return health.is_success and set(health.json()["methods"]) == set(METHODS)

    declare(config)
    until(ready, START_SECONDS)
    yield config, url, declare
    client.delete_apps([NAME])


def running(url):
    """What answers: when the ingress was started, and the replicas' processes."""
    found = {"ingress": HTTP.get(f"{url}/v1/models").json()["data"][0]["created"]}
    for name in METHODS:
        handle = serve.get_deployment_handle(name, NAME)
        found[name] = handle.placement.remote().result(timeout_s=CALL_SECONDS)["pid"]
    return found


def in_force(url):
    return HTTP.get(f"{url}/v1/routing").json()["settings"]


@pytest.mark.slow
def test_args_change_while_clients_ask(service):
    config, url, declare = service
    first = running(url)
    with Clients(url) as clients:
        config = changed(config, router={"half_life": 7.0}, http={"max_answer_seconds": 40.0})
        declare(config)
        until(lambda: in_force(url)["router"]["half_life"] == 7.0)
        assert in_force(url)["http"]["max_answer_seconds"] == 40.0
        assert running(url) == first, "nothing was started again"

        config = changed(config, router={"drift_window": 100, "half_life": 8.0})
        declare(config)
        until(lambda: running(url)["ingress"] > first["ingress"], START_SECONDS)
        assert in_force(url)["router"]["half_life"] == 8.0
        second = running(url)
        assert {name: second[name] for name in METHODS} == {name: first[name] for name in METHODS}

        declare(changed(config, engine={"max_waiting": 65}))
        until(lambda: not set(running(url).values()) & set(second.values()), START_SECONDS)
        until(lambda: serve.status().applications[NAME].status == "RUNNING", START_SECONDS)
    print(f"{len(clients.seconds)} requests, the slowest took {max(clients.seconds):.1f} s")
    assert clients.failed == []
