"""Names of Ray's that `deployments.transport` relies on."""

import dataclasses
import inspect
import os
import subprocess
import sys

from ray.serve._private.handle_options import InitHandleOptions
from ray.serve.handle import DeploymentHandle

from deployments import transport

FLAGS = """
from ray.serve._private import constants, handle_options
print(
    constants.RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD,
    constants.RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP,
    constants.RAY_SERVE_PROXY_USE_GRPC,
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
    assert read == ["False", "False", "True", "False"]


def test_ray_knows_the_option_of_handles():
    options = inspect.signature(DeploymentHandle.options).parameters
    assert transport.OVER_GRPC.keys() <= options.keys()
    fields = {field.name for field in dataclasses.fields(InitHandleOptions)}
    assert transport.WITHOUT_LOOP.keys() <= fields
