"""What replicas of vLLM's methods get, and which configurations are refused before one starts."""

import pytest
from served import service_config
from test_app import changed, deployments

from deployments.app import build
from deployments.artifacts import portfolios
from deployments.configuration import ConfigError
from deployments.replica.placement import placed_engine, resources_of
from schemas import MethodDeployment
from workers.vllm_engine import versions

METHODS = ("vllm_naive", "vllm_ngram")


@pytest.fixture(scope="module")
def vllm_config(tmp_path_factory, tiny_bundle):
    return service_config(tmp_path_factory.mktemp("vllm"), tiny_bundle, METHODS)


@pytest.fixture(autouse=True)
def _installed(monkeypatch):
    """Whether vLLM is installed here or not."""
    monkeypatch.setattr(versions, "installed", lambda: "0.32.0")


def placed(config, *, vllm=None, **resources):
    """The configuration with these resources for every replica, and vLLM's settings."""
    methods = [m.model_dump() | resources for m in config.methods]
    shared = config.shared.model_dump() | resources
    return changed(config, methods=methods, shared=shared, engine={"vllm": vllm or {}})


def option(deployment, name):
    return getattr(deployment._replica_config, name)


def engine_of(config, method):
    [specs] = [p for p in portfolios(config) if method in {spec.name for spec in p}]
    return placed_engine(resources_of(method, config), specs, config.engine)


def test_a_fraction_of_a_gpu_is_a_replicas_own_resource(vllm_config):
    config = placed(vllm_config, num_gpus=0.5, num_cpus=2)
    for name in METHODS:
        made = deployments(build(config))[name]
        assert made.ray_actor_options["num_gpus"] == 0.5
        assert made.ray_actor_options["num_cpus"] == 2
        assert option(made, "placement_group_bundles") is None


def test_tensor_parallelism_has_a_placement_group(vllm_config):
    config = placed(vllm_config, vllm={"tensor_parallel_size": 4}, num_cpus=2)
    made = deployments(build(config))["vllm_ngram"]
    bundles = option(made, "placement_group_bundles")
    assert bundles == [{"GPU": 1.0, "CPU": 2.0}, {"GPU": 1.0}, {"GPU": 1.0}, {"GPU": 1.0}]
    assert option(made, "placement_group_strategy") == "PACK"
    # The group has the GPUs; the replica's own would come on top of them.
    assert made.ray_actor_options["num_gpus"] == 0
    engine = engine_of(config, "vllm_ngram")
    assert engine.vllm.distributed_executor_backend == "ray"
    assert engine.vllm.gpu_memory_utilization == 0.9


def test_a_shared_engine_has_one_placement_group(vllm_config):
    config = placed(vllm_config, vllm={"tensor_parallel_size": 2}, num_gpus=2, num_cpus=0)
    made = deployments(build(config.model_copy(update={"layout": "shared"})))
    assert set(made) == {"ingress", "shared"}
    assert option(made["shared"], "placement_group_bundles") == [{"GPU": 1.0}, {"GPU": 1.0}]


@pytest.mark.parametrize(
    ("gpus", "share"), [(0.0, None), (0.25, 0.225), (0.5, 0.45), (1 / 3, 0.3), (1.0, 0.9)]
)
def test_the_engine_takes_the_memory_of_its_share(vllm_config, gpus, share):
    config = placed(vllm_config, num_gpus=gpus)
    engine = engine_of(config, "vllm_naive")
    assert engine.vllm.gpu_memory_utilization == share
    assert engine.vllm.distributed_executor_backend is None


def test_a_share_that_is_configured_stays(vllm_config):
    config = placed(vllm_config, vllm={"gpu_memory_utilization": 0.3}, num_gpus=1)
    assert engine_of(config, "vllm_naive").vllm.gpu_memory_utilization == 0.3


def test_other_engines_know_nothing_of_it(config):
    engine = changed(config, engine={"vllm": {"tensor_parallel_size": 2}})
    assert placed_engine(MethodDeployment(name="naive"), portfolios(engine)[0], engine.engine) == (
        engine.engine
    )
    made = deployments(build(engine))["naive"]
    assert option(made, "placement_group_bundles") is None


def test_vllms_processes_find_their_environment(vllm_config):
    made = deployments(build(changed(vllm_config, engine={"threads": 2})))["vllm_naive"]
    env = made.ray_actor_options["runtime_env"]["env_vars"]
    assert env["OMP_NUM_THREADS"] == "2"
    assert env["OMP_WAIT_POLICY"] == "PASSIVE"
    assert env["VLLM_NO_USAGE_STATS"] == "1"


@pytest.mark.parametrize(
    ("resources", "vllm", "said"),
    [
        ({"num_gpus": 2}, {}, r"num_gpus: 2 GPUs.* engine.vllm.tensor_parallel_size to 2"),
        ({"num_gpus": 0.5}, {"tensor_parallel_size": 2}, "num_gpus: 0.5.* set it to 2"),
        ({"num_gpus": 1}, {"tensor_parallel_size": 2}, "num_gpus: 1.* set it to 2"),
        ({"max_replicas_per_node": 1}, {"tensor_parallel_size": 2}, "max_replicas_per_node: "),
    ],
)
def test_resources_that_do_not_fit_are_named(vllm_config, resources, vllm, said):
    with pytest.raises(ConfigError, match=f"^vllm_naive.{said}"):
        build(placed(vllm_config, vllm=vllm, **resources))


def test_tensor_parallelism_needs_gpus(vllm_config):
    config = changed(vllm_config, engine={"device": "cpu", "vllm": {"tensor_parallel_size": 2}})
    with pytest.raises(ConfigError, match=r"tensor_parallel_size: 2 GPUs .*engine\.device is cpu"):
        build(config)


def test_a_shared_engine_holds_methods_of_one_engine(config):
    both = [{"name": "naive"}, {"name": "vllm_ngram"}]
    with pytest.raises(ConfigError, match=r"torch: naive; vllm: vllm_ngram: .*per_method"):
        build(changed(config, layout="shared", methods=both))


def test_a_method_that_the_installed_vllm_lacks_is_named(vllm_config, monkeypatch):
    monkeypatch.setattr(versions, "installed", lambda: None)
    with pytest.raises(ConfigError, match=r"vllm_naive needs vLLM .* not installed"):
        build(vllm_config)
