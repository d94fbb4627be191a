"""Where and with what a figure was measured."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ops.harness.settings import Setup, device_of, with_dtype
from schemas import MeasuredUnder
from workers.bundle import Bundle
from workers.vllm_engine.versions import installed

LIBRARIES = ("torch", "transformers", "ray", "onnxruntime", "numpy")
REPOSITORY = Path(__file__).parents[2]


def machine_name() -> str:
    """Processor, core count and vector instructions: two machines of the same name measure
    comparable times."""
    return ", ".join([processor(), f"{os.cpu_count()} cores", *_instructions()])


def processor() -> str:
    """The processor's model name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def _instructions() -> list[str]:
    """The widest vector instructions that torch may use here, of x86's."""
    named = os.environ.get("ATEN_CPU_CAPABILITY")
    if named:
        return [named]
    try:
        flags = Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split()
    except OSError:
        return []
    widest: list[str] = [name for name in ("avx512_bf16", "avx512f", "avx2") if name in flags]
    return widest[:1]


def git_commit() -> str | None:
    """The repository's commit, with -dirty where tracked files differ from it."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()


def describe_machine() -> dict[str, Any]:
    """Machine, system, library versions and commit, for the settings of a measurement."""
    return {
        "machine": machine_name(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "libraries": {name: _version(name) for name in LIBRARIES} | {"vllm": installed()},
        "git_commit": git_commit(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def measured_under(setup: Setup, bundle: Bundle) -> MeasuredUnder:
    """The conditions that a profile carries and that a later one has to share."""
    setup = with_dtype(setup)
    return MeasuredUnder(
        machine=machine_name(),
        device=device_of(setup.engine),
        dtype=setup.engine.dtype,
        threads=setup.engine.threads,
        bundle=f"{bundle.name}@{bundle.content_hash}",
    )


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
