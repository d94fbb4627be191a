"""Two methods with a GPU each: Ray gives them different devices, through the real application."""

METHODS = ("draft_verify", "ngram")


def test_each_method_has_a_device_of_its_own(service):
    placements = {name: service.method(name, "placement") for name in METHODS}
    devices = {name: placement["cuda_visible_devices"] for name, placement in placements.items()}
    gpus = {name: placement["gpu_ids"] for name, placement in placements.items()}
    assert [len(ids) for ids in gpus.values()] == [1, 1]
    assert gpus["draft_verify"] != gpus["ngram"]
    assert devices == {name: str(ids[0]) for name, ids in gpus.items()}
    assert service.method("naive", "placement")["gpu_ids"] == []


def test_without_cuda_the_models_run_on_the_cpu(service):
    """`device: auto` on a machine whose GPUs are only Ray's accounting."""
    for name in METHODS:
        assert service.chat(model=f"tiny:{name}").headers["x-specadapt-method"] == name
