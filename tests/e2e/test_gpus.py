"""Two methods with a GPU each: Ray gives them different devices, through the real application."""

import pytest
from ray import serve
from served import service_config

from deployments.run import APPLICATION

METHODS = ("naive", "ngram")


@pytest.fixture(scope="module")
def service(deploy, port, tiny_bundle, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpus")
    config = service_config(folder, tiny_bundle, METHODS, http={"port": port})
    methods = tuple(m.model_copy(update={"num_gpus": 1.0}) for m in config.methods)
    yield deploy(config.model_copy(update={"methods": methods}))
    serve.delete(APPLICATION)


def test_each_method_has_a_device_of_its_own(service):
    placements = {name: service.method(name, "placement") for name in METHODS}
    devices = {name: placement["cuda_visible_devices"] for name, placement in placements.items()}
    assert sorted(devices.values()) == ["0", "1"]
    assert sorted(g for p in placements.values() for g in p["gpu_ids"]) == [0, 1]


def test_without_cuda_the_models_run_on_the_cpu(service):
    """`device: auto` on a machine whose GPUs are only Ray's accounting."""
    for name in METHODS:
        assert service.chat(model=f"tiny:{name}").headers["x-specadapt-method"] == name
