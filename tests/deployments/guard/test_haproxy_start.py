"""Ray's HAProxy as our program starts it, on the configuration that Ray writes."""

import inspect
import json
import os
import socket
import subprocess
from contextlib import ExitStack, closing
from functools import partial

import psutil
import pytest
from ray.serve._private import constants, haproxy_templates
from ray.serve._private.haproxy import BackendConfig, HAProxyApi, HAProxyConfig, ServerConfig
from ray.serve.config import HTTPOptions
from running_service import until

from deployments.guard import haproxy
from deployments.guard.haproxy import free_port

pytestmark = pytest.mark.skipif(not haproxy.available(), reason="Ray brings no HAProxy")


def written(folder, port, servers=1):
    """The file that Ray writes for a service with one ingress, or for none yet."""
    ingresses = [ServerConfig(name="ingress", host="127.0.0.1", port=free_port())]
    backend = BackendConfig("http-app", "/", app_name="app", servers=ingresses)
    config = HAProxyConfig(
        socket_path=str(folder / "admin.sock"),
        server_state_base=str(folder),
        server_state_file=str(folder / "server-state"),
        metrics_socket_path=str(folder / "metrics.sock"),
        http_options=HTTPOptions(host="127.0.0.1", port=port),
        has_received_routes=True,
    )
    file = folder / "haproxy.cfg"
    HAProxyApi(
        config, {"app": backend} if servers else {}, str(file)
    )._generate_config_file_internal()
    return file


@pytest.fixture
def folder(tmp_path_factory):
    """A socket's path is short."""
    return tmp_path_factory.mktemp("h")


@pytest.fixture
def started(folder):
    """Starts HAProxy by the program, as Ray does; gives its process and port."""
    with ExitStack() as stack:
        yield partial(begun, stack, folder)


def begun(stack, folder, servers=1):
    port = free_port()
    command = [folder / "haproxy", "-db", "-f", written(folder, port, servers)]
    environment = {**os.environ, **haproxy.local_settings(folder)}
    process = stack.enter_context(subprocess.Popen(command, env=environment))
    stack.callback(process.kill)
    own = psutil.Process(process.pid)
    until(lambda: listening(own))
    return own, port


def listening(process):
    connections = process.net_connections("inet")
    return [c.laddr for c in connections if c.status == psutil.CONN_LISTEN]


def asked(port, *pieces):
    with closing(socket.create_connection(("127.0.0.1", port), timeout=60)) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
        except ConnectionError:
            pass
        answer = connection.recv(65536).decode()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body


def test_it_listens_at_its_address_alone(started):
    own, port = started()
    assert listening(own) == [("127.0.0.1", port)]


def test_headers_and_methods_are_bounded(started):
    own, port = started()
    before = own.cpu_times().user
    bomb = [b"a: " + b"b" * 2**20 + b"\r\n"] * 64
    assert asked(port, b"GET / HTTP/1.1\r\n", *bomb)[0] == 400
    assert own.cpu_times().user - before < 1.0
    status, body = asked(port, b"FOO / HTTP/1.1\r\n\r\n")
    assert (status, json.loads(body)["error"]["code"]) == (405, "method_not_allowed")


@pytest.mark.parametrize("servers", [0, 1], ids=["not known", "not there"])
def test_without_an_ingress_clients_try_again(started, servers):
    _, port = started(servers)
    status, body = asked(port, b"GET /v1/models HTTP/1.1\r\n\r\n")
    assert (status, json.loads(body)["error"]["code"]) == (503, "unavailable")


def test_another_template_of_rays_is_noticed():
    with pytest.raises(ValueError, match="listen stats"):
        haproxy.bounded(haproxy_templates.HAPROXY_CONFIG_TEMPLATE.replace("listen stats", ""))


def test_ray_knows_the_variables(tmp_path):
    source = inspect.getsource(constants)
    assert [name for name in haproxy.local_settings(tmp_path) if name not in source] == []
