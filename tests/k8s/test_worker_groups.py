"""Replicas fit the worker groups, and each method is pinned to GPUs of its own."""

import re
from collections import Counter

import pytest
import yaml
from manifests import ROOT
from ray._private.accelerators.nvidia_gpu import NvidiaGPUAcceleratorManager
from ray.autoscaler._private.kuberay.autoscaling_config import _get_ray_resources_from_group_spec
from rendered import OVERLAYS, needs_kubectl, ray_service, rendered
from test_manifests import SERVE_YAML, applications, serve_config

from deployments.app import checked
from deployments.artifacts import portfolios
from deployments.configuration import resolved
from deployments.replica.placement import replica_options, resources_of
from ops.operate.gpu_plan import BATCH, CONTEXT, gpu_plan, planned_bundle


def asked_for(config):
    """What an application's replicas take, at least and at most: by Ray's resource, and by type of
    GPU where a method names one."""
    http = config.http
    ingress = {"CPU": http.ingress_num_cpus}
    found = {"least": Counter(), "most": Counter()}
    asked = [(http.ingress_replicas, http.ingress_replicas, [ingress])]
    for specs in portfolios(config):
        resources = resources_of(specs[0].name, config)
        options = replica_options(specs[0].name, resources, specs, config)
        actor = options["ray_actor_options"]
        own = {"CPU": actor["num_cpus"], "GPU": actor["num_gpus"]}
        if "accelerator_type" in actor:
            own[f"accelerator_type:{actor['accelerator_type']}"] = actor["num_gpus"]
        bundles = options.get("placement_group_bundles", [own])
        asked.append((resources.min_replicas, resources.max_replicas, bundles))
    for least, most, bundles in asked:
        for bundle in bundles:
            for kind, amount in bundle.items():
                found["least"][kind] += least * amount
                found["most"][kind] += most * amount
    return found


def offered(cluster, size):
    """What the worker groups have at their `minReplicas` or `maxReplicas`, as Ray's autoscaler
    reads them. A type of GPU counts as many as its groups have GPUs."""
    found = Counter()
    for group in cluster["workerGroupSpecs"]:
        node = _get_ray_resources_from_group_spec(group, is_head=False)
        for kind, amount in node.items():
            typed = kind.startswith("accelerator_type:")
            found[kind] += group[size] * (node["GPU"] if typed else amount)
    return found


@needs_kubectl
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_worker_groups_hold_all_replicas(overlay):
    [application] = applications(serve_config(overlay))
    needs = asked_for(application)
    for bound, size in (("least", "minReplicas"), ("most", "maxReplicas")):
        there = offered(ray_service(rendered(overlay))["rayClusterConfig"], size)
        for kind, amount in needs[bound].items():
            assert amount <= there[kind], (bound, kind)


def pinned(config):
    """The methods of a configuration, once it is certain that each has replicas of its own that
    come and go on GPUs of their own."""
    assert config.layout == "per_method"
    for method in config.methods:
        assert method.num_gpus == 1, method.name
        assert method.min_replicas < method.max_replicas, method.name
    return config.methods


def test_serve_yaml_fits_one_gpu_and_says_how_it_runs_without():
    text = (ROOT / SERVE_YAML).read_text()
    [on_gpus] = applications(yaml.safe_load(text))
    assert 0 < asked_for(on_gpus)["most"]["GPU"] <= 1
    [said] = re.findall(r"sed 's/(.*)/(.*)/' serve.yaml", text)
    [on_cpus] = applications(yaml.safe_load(text.replace(*said)))
    assert {method.num_gpus for method in on_cpus.methods} == {0.0}
    checked(resolved(on_cpus))


@needs_kubectl
def test_each_method_of_the_gpu_overlay_is_pinned_to_a_type_of_gpu():
    [application] = applications(serve_config("gpu"))
    groups = ray_service(rendered("gpu"))["rayClusterConfig"]["workerGroupSpecs"]
    types = {kind for group in groups for kind in group["resources"]}
    assert {
        f"accelerator_type:{method.accelerator_type}" for method in pinned(application)
    } == types
    for group in groups:
        [container] = group["template"]["spec"]["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
        [kind] = group["resources"]
        # Ray finds the same name on the node as the autoscaler reads here.
        assert kind == f"accelerator_type:{type_of(group)}"


def type_of(group):
    """The type of GPU of a worker group's nodes, as Ray finds it there."""
    product = group["template"]["spec"]["nodeSelector"]["nvidia.com/gpu.product"]
    return NvidiaGPUAcceleratorManager._gpu_name_to_accelerator_type(product.replace("-", " "))


@needs_kubectl
@pytest.mark.parametrize(
    ("overlay", "target"), [("gpu", "llama-3.1-8b"), ("gpu-multi-node", "llama-3.1-70b")]
)
def test_the_worker_groups_are_what_a_plan_of_the_overlay_asks_for(overlay, target):
    models = ROOT / "tests" / "model_configs"
    drafters = {"draft": "llama-3.2-1b", "eagle3": "eagle3-llama-3.1-8b"}
    given = [f"{part}={models / name}" for part, name in drafters.items()]
    bundle = planned_bundle(str(models / target), given, ROOT)
    [application] = applications(serve_config(overlay))
    engine = application.engine
    assert (engine.max_batch, engine.max_context) == (BATCH, CONTEXT), "as without a configuration"
    for group in ray_service(rendered(overlay))["rayClusterConfig"]["workerGroupSpecs"]:
        plan = gpu_plan(f"nvidia-{type_of(group).lower()}", None, application, bundle)
        [container] = group["template"]["spec"]["containers"]
        gpus = int(container["resources"]["limits"]["nvidia.com/gpu"])
        assert plan["gpus"] == [gpus * group["minReplicas"], gpus * group["maxReplicas"]]
        for planned in plan["engines"]:
            assert planned["gpus"] == gpus
            arguments = {"max_num_seqs": BATCH, "max_model_len": CONTEXT, **engine.vllm}
            assert arguments.items() <= planned["arguments"].items()
            assert planned["memory"]["kv_tokens"] >= BATCH * CONTEXT, planned["methods"]


@needs_kubectl
def test_the_shared_overlay_has_one_engine_on_each_gpu():
    [application] = applications(serve_config("gpu-shared"))
    assert application.layout == "shared"
    assert application.shared.num_gpus == 1
    assert application.shared.min_replicas < application.shared.max_replicas
