"""serve.yaml, cluster.yaml and k8s/ are valid, and a wrong field would be noticed."""

import copy
import re

import pytest
import yaml
from manifests import DEFINITIONS, ROOT, documents, problems
from pydantic import ValidationError
from ray.autoscaler._private.util import prepare_config, validate_config
from ray.serve.schema import ServeApplicationSchema, ServeDeploySchema

from deployments.app import ConfigError, validated
from schemas.config import DEFAULT_PORTFOLIO

MANIFESTS = sorted((ROOT / "k8s").glob("*.yaml"))
needs_schemas = pytest.mark.skipif(
    not DEFINITIONS.is_file(), reason="the schemas of ../shared are not here"
)


def serve_configs():
    """serve.yaml, and the one inside the RayService."""
    yield yaml.safe_load((ROOT / "serve.yaml").read_text())
    for manifest in MANIFESTS:
        for document in documents(manifest):
            if document["kind"] == "RayService":
                yield yaml.safe_load(document["spec"]["serveConfigV2"])


def applications(config):
    """The applications' args; raises where Ray Serve or the application would refuse."""
    # Ray lets names it does not know pass, for configurations of later versions.
    known = {ServeDeploySchema: [config], ServeApplicationSchema: config["applications"]}
    for schema, parts in known.items():
        for part in parts:
            assert set(part) <= set(schema.model_fields), "unknown field"
    return [validated(app.args) for app in ServeDeploySchema.model_validate(config).applications]


@pytest.mark.parametrize("config", list(serve_configs()))
def test_the_serve_configurations_are_valid(config):
    [application] = applications(config)
    assert tuple(m.name for m in application.methods) == DEFAULT_PORTFOLIO


@pytest.mark.parametrize("config", list(serve_configs()))
@pytest.mark.parametrize("place", ["top", "application", "args"])
def test_a_wrong_field_in_a_serve_configuration_fails(config, place):
    wrong = copy.deepcopy(config)
    application = wrong["applications"][0]
    target = {"top": wrong, "application": application, "args": application["args"]}[place]
    target["replicaz"] = 3
    with pytest.raises((ValidationError, ConfigError, AssertionError), match=r"replicaz|unknown"):
        applications(wrong)


def cluster():
    return yaml.safe_load((ROOT / "cluster.yaml").read_text())


def test_the_cluster_is_valid():
    validate_config(prepare_config(cluster()))


@pytest.mark.parametrize("place", ["top", "docker"])
def test_a_wrong_field_in_the_cluster_fails(place):
    wrong = cluster()
    (wrong if place == "top" else wrong["docker"])["imagge"] = "x"
    with pytest.raises(Exception, match="imagge"):
        validate_config(prepare_config(wrong))


@needs_schemas
@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.name)
def test_the_manifests_are_valid(manifest):
    for document in documents(manifest):
        assert problems(document) == []


def paths(value, here=()):
    """Every place in a document that holds named fields."""
    if isinstance(value, dict):
        yield here
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        if isinstance(inner, dict | list):
            yield from paths(inner, (*here, key))


FREE_FORM = {"rayStartParams", "requests", "limits", "labels", "annotations", "matchLabels"}


@needs_schemas
@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.name)
def test_a_wrong_field_anywhere_in_a_manifest_fails(manifest):
    for document in documents(manifest):
        for path in paths(document):
            if path and path[-1] in FREE_FORM:
                continue
            wrong = copy.deepcopy(document)
            target = wrong
            for key in path:
                target = target[key]
            target["replicaz"] = 3
            assert any("replicaz" in problem for problem in problems(wrong)), path


@needs_schemas
def test_a_wrong_type_in_a_manifest_fails():
    [service] = [d for d in documents(ROOT / "k8s/rayservice.yaml") if d["kind"] == "RayService"]
    service["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]["maxReplicas"] = "four"
    assert any("maxReplicas" in problem for problem in problems(service))


def test_the_image_installs_what_constraints_pin():
    pinned = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line
    )
    dockerfile = (ROOT / "k8s/Dockerfile").read_text()
    assert set(re.findall(r"rayproject/ray:([\d.]+)-", dockerfile)) == {pinned["ray"]}
    for source in re.findall(r"^COPY --chown=\S+ (.+) \S+$", dockerfile, re.MULTILINE):
        for name in source.split():
            assert (ROOT / name).exists(), name
    [service] = [d for d in documents(ROOT / "k8s/rayservice.yaml") if d["kind"] == "RayService"]
    assert service["spec"]["rayClusterConfig"]["rayVersion"] == pinned["ray"]
