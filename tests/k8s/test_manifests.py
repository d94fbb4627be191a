"""serve.yaml, cluster.yaml and every overlay of k8s/ are valid."""

import re

import pytest
import yaml
from manifests import DEFINITIONS, ROOT, problems
from ray.autoscaler._private.util import prepare_config, validate_config
from ray.serve.schema import ServeApplicationSchema, ServeDeploySchema
from rendered import (
    JOBS,
    OVERLAYS,
    composed,
    needs_kubectl,
    of_kind,
    ray_groups,
    ray_service,
    rendered,
)

from deployments.configuration import validated
from schemas import AppConfig
from workers.bundle import load_bundle
from workers.portfolio import with_portfolio

needs_schemas = pytest.mark.skipif(
    not DEFINITIONS.is_file(), reason="the schemas of ../shared are not here"
)
LARGE_MODEL = {"gpu": "llama-3.1-8b", "gpu-multi-node": "llama-3.3-70b"}
"""Overlays that serve a configuration of configs/; the others serve the default bundle."""
SERVE_YAML = "serve.yaml"
FILES = [SERVE_YAML, *(pytest.param(name, marks=needs_kubectl) for name in OVERLAYS)]


def serve_config(name):
    """serve.yaml, or the one inside an overlay's RayService."""
    if name == SERVE_YAML:
        return yaml.safe_load((ROOT / SERVE_YAML).read_text())
    return yaml.safe_load(ray_service(rendered(name))["serveConfigV2"])


def applications(config):
    """The applications' args; raises where Ray Serve or the application would refuse."""
    # Ray lets names it does not know pass, for configurations of later versions.
    known = {ServeDeploySchema: [config], ServeApplicationSchema: config["applications"]}
    for schema, parts in known.items():
        for part in parts:
            assert set(part) <= set(schema.model_fields), "unknown field"
    return [validated(app.args) for app in ServeDeploySchema.model_validate(config).applications]


@pytest.mark.parametrize("name", FILES)
def test_the_serve_configurations_are_valid(name):
    [application] = applications(serve_config(name))
    if name in LARGE_MODEL:
        file = ROOT / "configs" / f"{LARGE_MODEL[name]}.yaml"
        example = validated(yaml.safe_load(file.read_text()))
        most = example.http.ingress_max_replicas_per_node
        http = {"guard": example.http.guard, "ingress_max_replicas_per_node": most}
        any_gpu = {"accelerator_type": None}
        own = {
            "bundle": example.bundle,
            "feedback": example.feedback,
            "http": application.http.model_copy(update=http),
            "methods": tuple(m.model_copy(update=any_gpu) for m in application.methods),
        }
        assert application.model_copy(update=own) == example
        assert application.bundle.name == example.bundle.name
        return
    assert application.bundle.name == AppConfig().bundle.name
    served = with_portfolio(AppConfig(), load_bundle(ROOT / AppConfig().bundle)).methods
    assert [m.name for m in application.methods] == [m.name for m in served]


@pytest.mark.parametrize("name", FILES)
def test_whatever_listens_beyond_loopback_asks_for_keys(name):
    config = serve_config(name)
    [application] = applications(config)
    guarded = application.http.guard.keys_file is not None
    assert guarded or config["http_options"]["host"] == "127.0.0.1"


def cluster():
    return yaml.safe_load((ROOT / "cluster.yaml").read_text())


def test_the_cluster_is_valid():
    validate_config(prepare_config(cluster()))


def test_the_cluster_asks_for_a_token_and_has_what_the_operations_page_asks_for():
    options = cluster()["docker"]["run_options"]
    environment = dict(
        option.removeprefix("--env ").split("=", 1) for option in options if "--env" in option
    )
    assert environment.pop("RAY_AUTH_MODE") == "token"
    page = (ROOT / "docs" / "operations.md").read_text()
    image = (ROOT / "Dockerfile").read_text()
    optional = re.findall(r"RAY_SERVE_(?:TRACING|ENABLE_HA_PROXY)[A-Z_]*", page)
    asked = set(re.findall(r"RAY_SERVE_[A-Z_]+", page)) - {
        *optional,
        *re.findall(r"RAY_SERVE_[A-Z_]+", image),
    }
    assert environment.keys() == asked
    assert any(place.endswith("/.ray/auth_token") for place in cluster()["file_mounts"])
    commands = cluster()["head_start_ray_commands"] + cluster()["worker_start_ray_commands"]
    starts = [command for command in commands if command.startswith("ray start")]
    assert len(starts) == 2
    for start in starts:
        assert "--metrics-export-port=8080" in start
        assert "--dashboard-host" not in start, "Ray's default is the loopback interface"


@needs_kubectl
def test_the_cluster_and_the_manifests_start_serve_alike():
    head, *_ = ray_groups(rendered("cpu"))
    [container] = head["template"]["spec"]["containers"]
    manifest = {
        f"--env {entry['name']}={entry['value']}"
        for entry in container["env"]
        if entry["name"].startswith("RAY_SERVE_")
    }
    assert manifest <= set(cluster()["docker"]["run_options"])


OTHER_WAYS = "upgrades in steps, no Redis, no shared volume"


@pytest.fixture
def documents(request, tmp_path):
    """An overlay's, those of the components that no overlay has, or a job's."""
    if request.param == OTHER_WAYS:
        return composed(tmp_path, INCREMENTAL)
    return rendered(request.param)


everything = pytest.mark.parametrize("documents", [*OVERLAYS, OTHER_WAYS, *JOBS], indirect=True)


@needs_kubectl
@needs_schemas
@everything
def test_the_manifests_are_valid(documents):
    for document in documents:
        assert problems(document) == [], document["metadata"]["name"]


@needs_kubectl
@everything
def test_everything_is_in_one_namespace_and_there_once(documents):
    names = [(document["kind"], document["metadata"]["name"]) for document in documents]
    assert len(names) == len(set(names))
    # a job is sent into a namespace that is there
    assert (("Namespace", "specadapt") in names) != any(kind == "Job" for kind, _ in names)
    for document in documents:
        assert document["kind"] == "Namespace" or document["metadata"]["namespace"] == "specadapt"


INCREMENTAL = ["components/gateway", "components/incremental-upgrade", "components/monitoring"]


@needs_kubectl
def test_an_incremental_upgrade_leaves_the_route_to_the_operator(tmp_path):
    documents = composed(tmp_path, INCREMENTAL)
    assert not of_kind(documents, "HTTPRoute")
    service = ray_service(documents)
    strategy = service["upgradeStrategy"]
    assert strategy["type"] == "NewClusterWithIncrementalUpgrade"
    assert strategy["clusterUpgradeOptions"]["gatewayClassName"]
    # the operator asks for it
    assert service["rayClusterConfig"]["enableInTreeAutoscaling"] is True
