"""Names of Ray's that `deployments.transport` relies on."""

import inspect
import os
import subprocess
import sys

import pytest
from ray.serve.handle import DeploymentHandle

from deployments import transport
from deployments.guard.haproxy import free_port

LOCAL, EVERY = "localhost,127.0.0.1,::1", "0.0.0.0/0,::/0"
FLAGS = """
from ray.serve._private import constants, handle_options
print(
    constants.RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD,
    constants.RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP,
    constants.RAY_SERVE_PROXY_USE_GRPC,
    constants.RAY_SERVE_METRICS_EXPORT_INTERVAL_MS,
    handle_options.InitHandleOptions()._run_router_in_separate_loop,
)
"""


def flags(environment):
    """What Ray Serve reads in a process with these variables."""
    command = [sys.executable, "-c", FLAGS]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_ray_knows_the_variables():
    unset = dict.fromkeys([*transport.INGRESS, *transport.PROXY], "")
    read = flags({**unset, **transport.INGRESS, **transport.PROXY})
    assert read == ["False", "False", "True", "1000", "False"]


def test_ray_knows_the_option_of_handles():
    options = inspect.signature(DeploymentHandle.options).parameters
    assert transport.OVER_GRPC.keys() <= options.keys()


@pytest.mark.parametrize(
    ("before", "proxies", "grpc"),
    [
        ({}, LOCAL, LOCAL),
        ({"no_proxy": ".corp, localhost"}, *[".corp,localhost,127.0.0.1,::1"] * 2),
        ({"NO_PROXY": ".corp"}, f".corp,{LOCAL}", f".corp,{LOCAL}"),
        ({"no_proxy": "*"}, "*", f"*,{LOCAL}"),
        ({"no_proxy": ".a", "no_grpc_proxy": ".b"}, f".a,{LOCAL}", f".b,{LOCAL}"),
    ],
)
def test_what_needs_no_proxy_is_added_to_what_is_set(monkeypatch, before, proxies, grpc):
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.setenv(name, before.get(name, ""))
    for _ in range(2):
        transport.bypass_proxies()
        assert os.environ["no_proxy"] == proxies
        assert os.environ[transport.NO_GRPC_PROXY] == f"{grpc},{EVERY}"


CHANNEL = """
import asyncio
import grpc
from deployments import transport

async def connects():
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
    try:
        await asyncio.wait_for(channel.channel_ready(), 2.0)
    except TimeoutError:
        return False
    finally:
        await channel.close()
        await server.stop(0)
    return True

print(asyncio.run(connects()))
transport.bypass_proxies()
print(asyncio.run(connects()))
"""


def test_grpc_connects_without_the_proxy():
    """The proxy's port is closed."""
    unset = {"no_proxy": "", "NO_PROXY": "", "no_grpc_proxy": ""}
    environment = {**os.environ, **unset, "http_proxy": f"http://127.0.0.1:{free_port()}"}
    command = [sys.executable, "-c", CHANNEL]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["False", "True"], done.stderr
