"""What is decided before anything starts."""

import socket

import pytest

from deployments.run import PortTakenError, needed_cpus, start_local_ray, with_free_port
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
