"""Each method has GPUs of its own, through the real application on a Ray of four GPUs, which are
only a number to it."""

import threading
from contextlib import contextmanager

import pytest
from ray import serve
from running_service import CALL_SECONDS, START_SECONDS, until
from served import METHODS, service_config

from deployments.run import APPLICATION

PINNED = ("draft_verify", "ngram")
"""The methods of the shared service that have a GPU."""

GPUS = 4
STEP_SECONDS = 0.2
"""So long that four clients are work for two replicas."""


def test_each_method_has_a_device_of_its_own(service):
    """One of them on a node that has its type of GPU."""
    placements = {name: service.method(name, "placement") for name in PINNED}
    devices = {name: placement["cuda_visible_devices"] for name, placement in placements.items()}
    gpus = {name: placement["gpu_ids"] for name, placement in placements.items()}
    assert [len(ids) for ids in gpus.values()] == [1, 1]
    assert gpus["draft_verify"] != gpus["ngram"]
    assert devices == {name: str(ids[0]) for name, ids in gpus.items()}
    placement = service.method("naive", "placement")
    assert placement["gpu_ids"] == []
    assert placement["cuda_visible_devices"] == "", "not all of the node's"
    for name in PINNED:  # `device: auto` where GPUs are only Ray's accounting
        assert service.chat(model=f"tiny:{name}").headers["x-specadapt-method"] == name


@pytest.fixture(scope="module")
def scaling(deploy, port, tiny_bundle, tmp_path_factory):
    """Fake engines: three methods with a GPU for each replica and one or two replicas, on
    four GPUs, so that one of them can have a second replica."""
    resources = {
        "num_cpus": 0,
        "num_gpus": 1,
        "min_replicas": 1,
        "max_replicas": 2,
        "target_seconds": 0.5,
        "upscale_delay_seconds": 0.0,
        "downscale_delay_seconds": 0.0,
    }
    settings = {
        "methods": [{"name": name} | resources for name in METHODS],
        "http": {"port": port},
    }
    folder = tmp_path_factory.mktemp("gpus")
    config = service_config(folder, tiny_bundle, step_seconds=STEP_SECONDS, **settings)
    return deploy(config, STEP_SECONDS)


def states(method):
    return serve.status().applications[APPLICATION].deployments[method].replica_states


def running(method):
    return states(method).get("RUNNING", 0)


def devices():
    """What each running replica sees as its device: (method, device), one a replica."""
    found = []
    for method in METHODS:
        handle = serve.get_deployment_handle(method, APPLICATION)
        for placement in handle.broadcast("placement").results(timeout_s=CALL_SECONDS):
            assert placement["cuda_visible_devices"] == str(placement["gpu_ids"][0])
            found.append((method, placement["cuda_visible_devices"]))
    assert len({device for _, device in found}) == len(found), "a device for each replica"
    return found


def ask(service, model):
    return service.chat(model=model, max_tokens=25, temperature=0)


@contextmanager
def busy(service, method):
    """Four clients ask for nothing but this method, meanwhile."""
    stop = threading.Event()

    def forever():
        while not stop.is_set():
            ask(service, f"tiny:{method}")

    clients = [threading.Thread(target=forever, daemon=True) for _ in range(4)]
    for client in clients:
        client.start()
    try:
        yield
    finally:
        stop.set()
        for client in clients:
            client.join(CALL_SECONDS)


@pytest.mark.slow
def test_methods_scale_on_the_gpus_there_are_and_one_without_room_harms_no_other(scaling):
    assert [method for method, _ in devices()] == list(METHODS)
    with busy(scaling, "naive"):
        until(lambda: running("naive") == 2, START_SECONDS)
        assert len(devices()) == GPUS
        with busy(scaling, "ngram"):
            # no GPU is left: its second replica waits, and its first goes on
            until(lambda: states("ngram").get("STARTING"), START_SECONDS)
            for method in METHODS:
                assert ask(scaling, f"tiny:{method}").is_success, method
            assert ask(scaling, "tiny").is_success
            assert (running("naive"), running("ngram")) == (2, 1)
            assert set(scaling.routing()["circuits"].values()) == {"closed"}
    until(lambda: all(running(method) == 1 for method in METHODS), START_SECONDS)
    assert [method for method, _ in devices()] == list(METHODS)
    # the GPU of a replica that went is the next one's
    with busy(scaling, "ngram"):
        until(lambda: running("ngram") == 2, START_SECONDS)
        assert len(devices()) == GPUS
