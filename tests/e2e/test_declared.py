"""An application as `serve deploy` and KubeRay declare it: under a route prefix, behind API keys,
with settings that change while it runs."""

import json
import re
import socket
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import ray
import yaml
from ray import serve
from ray.serve.context import _get_global_client
from ray.serve.schema import ServeDeploySchema
from running_service import CALL_SECONDS, HTTP, START_SECONDS, until
from served import service_config

from deployments.guard.key_file import hash_of

NAME = "live"
KEYS = {
    "keys": [
        {"name": "app", "sha256": hash_of("app-key"), "tenant": "acme"},
        {"name": "root", "sha256": hash_of("root-key"), "admin": True},
    ],
    "tenants": {"acme": {}},
}


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
    folder = tmp_path_factory.mktemp("live")
    (folder / "keys.yaml").write_text(yaml.safe_dump(KEYS))
    http = {"port": port, "ingress_num_cpus": 0.0}
    http["guard"] = {"keys_file": folder / "keys.yaml"}
    config = service_config(folder, tiny_bundle, ("naive", "ngram"), http=http)
    free = [method.model_copy(update={"num_cpus": 0.0}) for method in config.methods]
    config = config.model_copy(update={"methods": tuple(free)})
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    client = _get_global_client()
    url = f"http://127.0.0.1:{port}/live"

    def settings(user_config):
        client.deploy_apps(declared(config, user_config))

    def ready():
        try:
            health = HTTP.get(f"{url}/health")
        except httpx.TransportError:
            return False
        return health.is_success and len(health.json()["methods"]) == 2

    settings({"router": {"exploration": 0.0}})
    until(ready, START_SECONDS)
    # The first call waits for the feedback actor's start.
    until(lambda: got(f"{url}/admin/routing/history", "root-key").is_success)
    yield url, settings
    client.delete_apps([NAME])


def as_key(key="app-key"):
    return {"authorization": f"Bearer {key}"} if key else {}


def got(url, key="app-key", **headers):
    return HTTP.get(url, headers=as_key(key) | headers)


def born(url):
    """When the ingress that answers was started."""
    return got(f"{url}/v1/models").json()["data"][0]["created"]


def in_force(url):
    return got(f"{url}/v1/routing").json()["settings"]


def ask(url, headers=None, **fields):
    body = {"messages": [{"role": "user", "content": "Write a Python function"}], "max_tokens": 8}
    return HTTP.post(
        f"{url}/v1/chat/completions",
        json={"model": "tiny", **body, **fields},
        headers=as_key() | (headers or {}),
        timeout=CALL_SECONDS,
    )


def logged():
    """What Ray Serve's log files of the application's ingress hold, line by line."""
    folder = Path(ray._private.worker._global_node.get_logs_dir_path()) / "serve"
    files = folder.glob(f"replica_{NAME}_ingress_*.log")
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_every_request_has_a_line_in_the_log_without_its_words(service):
    url, _ = service
    answer = ask(url, {"x-request-id": "mine-1"})
    got(f"{url}/v1/models", None, **{"x-request-id": "mine-2"})

    def lines(request_id):
        return [line for line in logged() if line.get("request_id") == request_id and "key" in line]

    [line] = until(lambda: lines("mine-1"))
    used = answer.json()["usage"]
    assert (line["key"], line["tenant"], line["status"]) == ("app", "acme", 200)
    assert (line["method"], line["path"]) == ("POST", "/live/v1/chat/completions")
    assert line["answered_by"] == answer.headers["x-specadapt-method"]
    assert line["tokens"] == used["total_tokens"]
    assert line["seconds"] > 0.0
    [refused] = until(lambda: lines("mine-2"))
    assert (refused["key"], refused["status"]) == (None, 401)
    assert "Python function" not in json.dumps(logged())
    assert "app-key" not in json.dumps(logged())


def exported():
    """What the node exports to Prometheus."""
    [node] = [node for node in ray.nodes() if node["Alive"]]
    address = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    return HTTP.get(address).text


def metric(name):
    """The value of a metric that has one series here; None where there is none."""
    found = re.search(rf"^{name}{{.*}} ([\d.e+]+)$", exported(), re.MULTILINE)
    return found and float(found[1])


def test_hundreds_of_slow_clients_hold_up_nobody(service, port):
    url, _ = service
    start = "POST /live/v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
    unfinished = f"{start}x-half: "
    head = f"{start}authorization: Bearer app-key\r\ncontent-length: 200\r\n\r\n{{"
    with ExitStack() as stack:
        for sent in [head] * 600 + [unfinished] * 100:
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            connection.sendall(sent.encode())
        for _ in range(20):
            assert got(f"{url}/health", None).status_code == 200
            plain = ask(url)
            assert plain.status_code in (200, 429)
            if plain.status_code == 429:
                assert plain.json()["error"]["code"] == "server_busy"
                assert int(plain.headers["retry-after"]) >= 1
        # Those that send nothing more give way.
        until(lambda: ask(url).status_code == 200)
        for _ in range(20):
            assert ask(url).status_code == 200
            assert got(f"{url}/health", None).status_code == 200
    assert ask(url).status_code == 200


def test_settings_change_without_a_request_being_lost(service):
    url, settings = service
    before = born(url)
    body = {"messages": [{"role": "user", "content": "Go on"}], "max_tokens": 300, "stream": True}
    body |= {"model": "tiny:naive", "ignore_eos": True, "stream_options": {"include_usage": True}}
    with HTTP.stream(
        "POST", f"{url}/v1/chat/completions", json=body, headers=as_key(), timeout=CALL_SECONDS
    ) as stream:
        lines = (line for line in stream.iter_lines() if line.startswith("data: "))
        next(lines)
        settings({"router": {"weights": {"naive": 0.0}, "exploration": 0.125}})
        until(lambda: in_force(url)["router"]["exploration"] == 0.125)
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
    assert in_force(url)["router"]["exploration"] == 0.0, "what is left out is as configured"
    assert born(url) == before, "nothing was started again"
    assert until(lambda: [one for one in logged() if "settings in force" in one["message"]])


def test_wrong_settings_are_refused_and_the_service_lives_on(service):
    url, settings = service
    settings({"router": {"exploration": 0.125}})
    until(lambda: in_force(url)["router"]["exploration"] == 0.125)
    before = born(url)
    settings({"router": {"weights": {"nobody": 1.0}}})
    refused = until(lambda: in_force(url)["refused"])
    assert refused.startswith("router.weights: 'nobody' is not served")

    def status():
        return serve.status().applications[NAME]

    until(lambda: metric("ray_specadapt_settings_refused") == 1.0)
    assert until(lambda: [one for one in logged() if "user_config is refused" in one["message"]])
    assert ask(url).is_success
    assert in_force(url)["router"]["exploration"] == 0.125, "the settings before go on"
    assert born(url) == before, "nothing was started again"
    settings({"router": {"exploration": 0.25}})
    until(lambda: in_force(url)["router"]["exploration"] == 0.25)
    assert in_force(url)["refused"] is None
    until(lambda: status().status == "RUNNING")
    until(lambda: metric("ray_specadapt_settings_refused") == 0.0)
