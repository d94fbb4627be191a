"""The image: what it is made of, and that everything that runs it means the same one."""

import re
import tomllib

import pytest
import yaml
from manifests import ROOT
from rendered import JOBS, OVERLAYS, needs_kubectl, of_kind, pods, rendered

DOCKERFILE = (ROOT / "Dockerfile").read_text()
IMAGE = re.search(r"^# .*docker build .*-t (\S+):(\S+)", DOCKERFILE, re.MULTILINE)


def pinned():
    lines = (ROOT / "constraints.txt").read_text().split()
    return dict(line.split("==") for line in lines if "==" in line)


def copied():
    """What the Dockerfile takes out of the repository."""
    lines = re.findall(r"^COPY (?!--from)(?:--\S+ )*(.+) \S+$", DOCKERFILE, re.MULTILINE)
    return [name for line in lines for name in line.split()]


def test_the_image_installs_what_constraints_pin():
    assert set(re.findall(r"rayproject/ray:([\d.]+)-", DOCKERFILE)) == {pinned()["ray"]}
    assert copied()
    for name in copied():
        assert (ROOT / name).exists(), name


def test_the_build_sees_what_it_copies_and_little_else():
    file = ROOT / ".dockerignore"
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    kept = {line[1:] for line in lines if line.startswith("!")}
    assert kept == {name.split("/")[0] for name in copied()}
    assert "**/__pycache__" in lines


def test_the_image_ends_as_a_user_that_owns_nothing():
    final = DOCKERFILE.split("\nFROM ")[-1]
    assert re.search(r"^USER 1000:100$", final, re.MULTILINE)
    assert "--chown" not in DOCKERFILE
    assert not re.search(r"^RUN ", final, re.MULTILINE)
    for argument in ("BASE", "TORCH_INDEX", "EXTRAS"):
        assert re.search(rf"^ARG {argument}=", DOCKERFILE, re.MULTILINE)


@needs_kubectl
@pytest.mark.parametrize("name", [*OVERLAYS, *JOBS])
def test_every_image_has_a_version(name):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for service in of_kind(rendered(name), "RayService"):
        assert service["spec"]["rayClusterConfig"]["rayVersion"] == pinned()["ray"]
    for pod in pods(rendered(name)):
        for container in pod.containers:
            if "image" not in container:  # the autoscaler's is the head's
                continue
            name, tag = container["image"].rsplit(":", 1)
            assert re.fullmatch(r"\d+\.\d+\.\d+(-[\w-]+)?", tag), container["image"]
            if "redis" not in name:
                assert name == IMAGE[1]
                assert tag.split("-")[0] == IMAGE[2] == version


def test_a_tag_stands_only_in_an_images_transformer():
    for file in (ROOT / "k8s").rglob("*.yaml"):
        if file.name != "kustomization.yaml":
            assert not re.search(r"^\s*(- )?image: \S*:", file.read_text(), re.MULTILINE), file
    cluster = yaml.safe_load((ROOT / "cluster.yaml").read_text())
    assert cluster["docker"]["image"] == IMAGE[0].rsplit(" ", 1)[-1]
