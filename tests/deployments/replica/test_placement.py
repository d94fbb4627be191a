"""What GPUs the replicas get, and which configurations are refused before one starts."""

import pytest
from served import service_config
from test_app import changed, deployments

from deployments.app import build
from deployments.artifacts import portfolios
from deployments.configuration import ConfigError
from deployments.replica.placement import HIDE_WITHOUT_SHARE, placed_engine, resources_of
from schemas import MethodDeployment
from workers.vllm_engine import versions

METHODS = ("vllm_naive", "vllm_ngram")
PARALLEL = {"vllm": {"tensor_parallel_size": 2}}


@pytest.fixture(scope="module")
def vllm_config(tmp_path_factory, tiny_bundle):
    return service_config(tmp_path_factory.mktemp("vllm"), tiny_bundle, METHODS)


@pytest.fixture(autouse=True)
def _installed(monkeypatch):
    """Whether vLLM is installed here or not."""
    monkeypatch.setattr(versions, "installed", lambda: "0.32.0")


def placed(config, *, vllm=None, engine=None, layout="per_method", **resources):
    """The configuration with these resources for every replica, and the engine's settings."""
    return changed(
        config,
        layout=layout,
        methods=[m.model_dump() | resources for m in config.methods],
        shared=config.shared.model_dump() | resources,
        engine=engine or {"vllm": vllm or {}},
    )


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
    assert engine.vllm["distributed_executor_backend"] == "ray"
    assert engine.vllm["gpu_memory_utilization"] == 0.9


def test_a_shared_engine_has_one_placement_group(vllm_config):
    shared = {"layout": "shared", "num_gpus": 2, "num_cpus": 0}
    made = deployments(build(placed(vllm_config, engine=PARALLEL, **shared)))
    assert set(made) == {"ingress", "shared"}
    assert option(made["shared"], "placement_group_bundles") == [{"GPU": 1.0}, {"GPU": 1.0}]


@pytest.mark.parametrize(
    ("gpus", "said", "share"),
    [
        *((0.0, {}, None), (0.25, {}, 0.225), (1 / 3, {}, 0.3), (1.0, {}, 0.9)),
        (1.0, {"gpu_memory_utilization": 0.3}, 0.3),
    ],
)
def test_the_engine_takes_the_memory_of_its_share(vllm_config, gpus, said, share):
    config = placed(vllm_config, vllm=said, num_gpus=gpus)
    engine = engine_of(config, "vllm_naive")
    assert engine.vllm == ({"gpu_memory_utilization": share} if share else {})


def test_other_engines_know_nothing_of_it(config):
    engine = changed(config, engine=PARALLEL)
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


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("tensor_parallel_size", "2", "expected a number of GPUs, got '2'"),
        ("max_model_len", 100, "our engine sets it: set engine.max_context"),
    ],
)
def test_arguments_of_vllm_that_cannot_be_taken_are_named(vllm_config, field, value, said):
    with pytest.raises(ConfigError, match=rf"^engine\.vllm\.{field}: {said}"):
        build(placed(vllm_config, vllm={field: value}))


@pytest.mark.parametrize("layout", ["per_method", "shared"])
@pytest.mark.parametrize(
    ("engine", "resources", "said"),
    [
        ({"device": "cuda"}, {}, r"num_gpus: 0, and engine\.device is cuda: set num_gpus to 1"),
        ({"device": "cuda"}, {"num_gpus": 2}, "num_gpus: 2 GPUs.* set num_gpus to 1 and max_repl"),
        ({"device": "auto"}, {"num_gpus": 1.5}, "num_gpus: 1.5 GPUs.* set num_gpus to 1"),
        ({"device": "cpu"}, {"num_gpus": 0.5}, r"num_gpus: 0.5, and engine\.device is cpu"),
        ({"device": "auto"}, {"accelerator_type": "L4"}, "accelerator_type: L4, and num_gpus is 0"),
        # parallelism is vLLM's: torch methods do not take part in it
        ({"device": "cuda"} | PARALLEL, {"num_gpus": 2}, "num_gpus: 2 GPUs"),
    ],
)
def test_torch_replicas_ask_for_the_gpu_that_they_use(config, layout, engine, resources, said):
    name = "shared" if layout == "shared" else config.methods[0].name
    with pytest.raises(ConfigError, match=rf"^{name}\.{said}"):
        build(placed(config, engine=engine, layout=layout, **resources))


def test_vllm_replicas_ask_for_the_gpu_that_they_use(vllm_config):
    on_cuda = changed(vllm_config, engine={"device": "cuda"})
    with pytest.raises(ConfigError, match=r"^vllm_naive\.num_gpus: 0, and engine\.device is cuda"):
        build(on_cuda)
    parallel = changed(vllm_config, engine={"device": "cuda"} | PARALLEL)
    assert build(parallel), "a placement group has the GPUs"


@pytest.mark.parametrize("gpus", [0.0, 0.5, 1.0])
def test_a_replica_sees_no_gpu_but_its_own(config, gpus):
    made = deployments(build(placed(config, engine={"device": "auto"}, num_gpus=gpus)))
    for method in config.methods:
        actor = made[method.name].ray_actor_options
        assert actor["num_gpus"] == gpus
        assert actor["runtime_env"]["env_vars"][HIDE_WITHOUT_SHARE] == "1"


def test_a_method_names_its_type_of_gpu(config, vllm_config):
    on_cuda = {"device": "cuda"}
    asked = placed(config, engine=on_cuda, num_gpus=1, accelerator_type="L4")
    for name in (method.name for method in config.methods):
        assert deployments(build(asked))[name].ray_actor_options["accelerator_type"] == "L4"
    parallel = placed(vllm_config, vllm={"tensor_parallel_size": 2}, accelerator_type="H100")
    made = deployments(build(parallel))["vllm_naive"]
    gpu = {"GPU": 1.0, "accelerator_type:H100": 0.001}
    assert option(made, "placement_group_bundles") == [gpu | {"CPU": 0.5}, gpu]
    assert "accelerator_type" not in made.ray_actor_options


def test_tensor_parallelism_needs_gpus(vllm_config):
    config = changed(vllm_config, engine={"device": "cpu"} | PARALLEL)
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
