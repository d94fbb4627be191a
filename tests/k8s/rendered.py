"""The documents that `kubectl apply -k` would send, and the pods they make."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from manifests import ROOT

K8S = ROOT / "k8s"
OVERLAYS = sorted(path.parent.name for path in K8S.glob("overlays/*/kustomization.yaml"))
JOBS = sorted(path.parent.name for path in K8S.glob("jobs/*/kustomization.yaml"))
"""What is sent by itself, before a service that needs what it makes."""
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not here")

Document = dict[str, Any]

KUBERAY_LABELS = {"ray.io/is-ray-node": "yes"}
"""What KubeRay adds to the pods of every cluster."""


class Pod(NamedTuple):
    """A pod that a document makes; `containers` with those that KubeRay adds by its fields."""

    name: str
    labels: dict[str, str]
    spec: Document
    containers: list[Document]


@cache
def _rendered(folder: Path) -> str:
    done = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(name: str) -> list[Document]:
    """The documents of an overlay or a job, new ones with every call."""
    return _documents(K8S / ("jobs" if name in JOBS else "overlays") / name)


def composed(folder: Path, components: list[str]) -> list[Document]:
    """The base with these components and CPU workers, as an overlay of somebody else's."""
    place = os.path.relpath(K8S, folder.resolve())
    kustomization = {
        "namespace": "specadapt",
        "resources": [f"{place}/base"],
        "components": [
            f"{place}/{part}" for part in ("overlays/cpu/service", "components/worker", *components)
        ],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return _documents(folder)


def _documents(folder: Path) -> list[Document]:
    return [document for document in yaml.safe_load_all(_rendered(folder)) if document]


def of_kind(documents: list[Document], kind: str) -> list[Document]:
    return [document for document in documents if document["kind"] == kind]


def ray_service(documents: list[Document]) -> Document:
    """Return the spec of the one RayService."""
    [service] = of_kind(documents, "RayService")
    return service["spec"]


def application(documents: list[Document]) -> Document:
    """Return the Ray Serve application of the one RayService."""
    [found] = yaml.safe_load(ray_service(documents)["serveConfigV2"])["applications"]
    return found


def ray_groups(documents: list[Document]) -> list[Document]:
    """Return the head's group and the workers'."""
    cluster = ray_service(documents)["rayClusterConfig"]
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


def ray_pods(documents: list[Document]) -> list[Pod]:
    """Return the pods of Ray's nodes: the head and workers."""
    found = [pod for pod in pods(documents) if "ray.io/is-ray-node" in pod.labels]
    assert len(found) > 1
    return found


def pods(documents: list[Document]) -> Iterator[Pod]:
    """Every pod that the documents make."""
    for document in (*of_kind(documents, "StatefulSet"), *of_kind(documents, "Job")):
        template = document["spec"]["template"]
        yield _pod(document["metadata"]["name"], template, {}, [])
    for document in of_kind(documents, "RayService"):
        cluster = document["spec"]["rayClusterConfig"]
        autoscaler = {"name": "autoscaler", **cluster["autoscalerOptions"]}
        yield _pod("head", cluster["headGroupSpec"]["template"], KUBERAY_LABELS, [autoscaler])
        for group in cluster["workerGroupSpecs"]:
            yield _pod(group["groupName"], group["template"], KUBERAY_LABELS, [])


def _pod(name: str, template: Document, labels: dict[str, str], added: list[Document]) -> Pod:
    spec = template["spec"]
    containers = [*spec.get("initContainers", []), *spec["containers"], *added]
    return Pod(name, template["metadata"]["labels"] | labels, spec, containers)


def selects(selector: Document, labels: dict[str, str]) -> bool:
    """Return whether a label selector takes a pod with these labels."""
    for key, value in selector.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    for rule in selector.get("matchExpressions", []):
        assert rule["operator"] == "In", "the only one used"
        if labels.get(rule["key"]) not in rule["values"]:
            return False
    return True
