"""What is decided before anything starts."""

import socket

import pytest

from deployments.run import (
    PortTakenError,
    StartError,
    cause,
    needed_cpus,
    start_local_ray,
    with_free_port,
)
from schemas import AppConfig


def on_port(port):
    return AppConfig(http={"port": port})


@pytest.mark.parametrize("shared", [False, True])
def test_a_taken_port_is_noticed_even_where_it_could_be_shared(shared):
    with socket.socket() as other:
        if shared:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(PortTakenError, match=f"http.port: .*{port}.*--port"):
            with_free_port(on_port(port))


@pytest.mark.parametrize(("gpus", "told"), [((), None), ((4,), 4)])
def test_a_local_ray_looks_for_the_gpus_of_the_machine(monkeypatch, gpus, told):
    """Told that there are none, it would let replicas that ask for one wait forever."""
    asked = {}
    monkeypatch.setattr("ray.init", lambda **settings: asked.update(settings))
    start_local_ray(2, *gpus)
    assert asked["num_gpus"] == told


def test_the_cpus_of_the_smallest_service():
    methods = [
        {"name": "a", "num_cpus": 1, "min_replicas": 2, "max_replicas": 4},
        {"name": "b", "num_cpus": 0.5, "min_replicas": 0},
    ]
    config = AppConfig(methods=methods, http={"ingress_num_cpus": 0.25})
    assert needed_cpus(config) == 2.75
    assert needed_cpus(config.model_copy(update={"layout": "shared"})) == 0.75


TRACEBACK = """The deployment failed to start 1 times in a row. See controller logs. Error:
ray::ServeReplica:app:shared.initialize_and_get_metadata() (pid=7, ip=127.0.0.1)
  File "replica.py", line 1928, in initialize_and_get_metadata
    raise RuntimeError(traceback.format_exc()) from None
RuntimeError: Traceback (most recent call last):
  File "method.py", line 82, in __init__
{}"""


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        ("workers.bundle.BundleError: head: a: b\nis wrong\n", "head: a: b\nis wrong\n"),
        ("ValueError: engine.device: none", "engine.device: none"),
        ("torch.OutOfMemoryError: CUDA out of memory", "OutOfMemoryError: CUDA out of memory"),
    ],
)
def test_a_failed_start_says_what_a_replica_raised(raised, said):
    assert cause(TRACEBACK.format(raised)) == said


def test_a_process_that_was_killed_is_named():
    said = cause("Retrying. Error:\nThe actor died unexpectedly: SIGKILL by OOM killer.")
    assert said.startswith("a replica's process ended while it loaded the model")
    assert said.endswith("SIGKILL by OOM killer.")


def test_a_ray_that_does_not_start_is_no_traceback(monkeypatch):
    def late(**_):
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr("ray.init", late)
    with pytest.raises(StartError, match=r"Ray did not start: .* timed out .* busy machine"):
        start_local_ray(2)
