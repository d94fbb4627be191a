"""A placement group over two of Ray's GPUs, as a tensor-parallel engine of vLLM's finds it."""

import pytest
import ray
from ray import serve
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from deployments.replica.placement import replica_options
from schemas import AppConfig, EngineConfig, MethodDeployment
from workers.methods import get_method


def replica():
    """In place of a replica whose engine needs two real GPUs; a class that Ray pickles by value."""

    class Replica:
        async def group(self):
            """The placement group's bundles, the replica's own GPUs, and those of workers that are
            started in each bundle as vLLM starts its own."""
            group = ray.util.get_current_placement_group()
            worker = ray.remote(num_cpus=0, num_gpus=1)(lambda: ray.get_gpu_ids())
            found = []
            for index in range(len(group.bundle_specs)):
                there = PlacementGroupSchedulingStrategy(group, index)
                found += await worker.options(scheduling_strategy=there).remote()
            return group.bundle_specs, ray.get_gpu_ids(), found

    return Replica


@pytest.mark.usefixtures("service")
def test_workers_find_a_gpu_in_every_bundle_and_the_replica_has_none():
    """Alongside a service that has two of the four GPUs."""
    resources = MethodDeployment(name="vllm_naive", num_cpus=1, accelerator_type="H100")
    engine = EngineConfig(vllm={"tensor_parallel_size": 2})
    config = AppConfig(methods=(resources,), engine=engine)
    options = replica_options("vllm_naive", resources, [get_method("vllm_naive")], config)
    parallel = serve.deployment(replica()).options(**options).bind()
    handle = serve.run(parallel, name="parallel", route_prefix="/parallel")
    bundles, own, workers = handle.group.remote().result(timeout_s=60)
    serve.delete("parallel")
    gpu = {"GPU": 1.0, "accelerator_type:H100": 0.001}
    assert bundles == [gpu | {"CPU": 1.0}, gpu]
    assert own == []
    assert len(set(workers)) == len(workers) == 2
