"""Settings of a command: the configuration file, overridden by flags, and the machine it is on."""

import os
import platform
import subprocess
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from deployments.configuration import ConfigError, validated
from ops.common.boundary import InputError
from router.fit.speedup import BASELINE, VLLM_BASELINE
from schemas import AppConfig, EngineConfig, MeasuredUnder, MethodSpec
from schemas.yaml_files import read_document
from workers.bundle import Bundle, load_bundle
from workers.methods import get_method
from workers.portfolio import method_of, with_bundle, with_portfolio
from workers.vllm_engine.versions import installed

LIBRARIES = ("torch", "transformers", "ray", "onnxruntime", "numpy")
REPOSITORY = Path(__file__).parents[2]
DRIVER = Path("/proc/driver/nvidia/version")
"""File of NVIDIA's driver: without one there is no GPU."""


@dataclass(frozen=True)
class Setup:
    """The bundle, methods and engine settings of a command.

    shared: whether replicas host all methods.
    """

    bundle: Path
    methods: tuple[MethodSpec, ...]
    engine: EngineConfig
    shared: bool = False

    @property
    def names(self) -> list[str]:
        return [spec.name for spec in self.methods]


def load_config(file: Path | None) -> AppConfig:
    """Read the YAML configuration, or return the defaults. Raises ValueError naming the field."""
    if file is None:
        return AppConfig()
    values = read_document(file)
    if not isinstance(values, dict):
        raise InputError(f"{file}: expected fields of the configuration, such as bundle, methods")
    if values.keys() & {"applications", "apiVersion"}:
        raise InputError(
            f"{file}: is for `serve deploy` or kubectl; give a file with the fields of its `args`"
        )
    try:
        return validated(values)
    except ConfigError as error:
        raise InputError(f"{file}: {error}") from error


def served_config(file: Path | None) -> AppConfig:
    """Return a service's configuration: the file's, or else the default methods in one replica.

    One replica starts sooner and takes less memory than one per method. Raises InputError.
    """
    return AppConfig(layout="shared") if file is None else load_config(file)


def resolve(
    config: AppConfig,
    bundle: Path | None = None,
    methods: str | None = None,
    dtype: str | None = None,
    threads: int | None = None,
) -> Setup:
    """Override the configuration with flags.

    If neither names methods, those that the bundle supports are used. Raises InputError if a method
    is unknown or the bundle is missing.
    """
    overrides = {"dtype": dtype, "threads": threads}
    engine = config.engine.model_copy(update={k: v for k, v in overrides.items() if v is not None})
    if bundle is None:
        config = with_bundle(config)
    folder = bundle or config.bundle
    if not folder.is_dir():
        raise InputError(f"--bundle: {folder} is not a folder; name one with a model family")
    family = load_bundle(folder)
    config = with_portfolio(config, family)
    return Setup(folder, _specs(config, methods, family), engine, config.layout == "shared")


def with_baseline(setup: Setup) -> Setup:
    """Add the baseline of speedups: `naive`, or `vllm_naive` if all methods are vLLM's."""
    vllm_alone = all(spec.engine == "vllm" for spec in setup.methods)
    plain = VLLM_BASELINE if vllm_alone else BASELINE
    if plain in setup.names:
        return setup
    return replace(setup, methods=(get_method(plain), *setup.methods))


def with_dtype(setup: Setup) -> Setup:
    """Replace the dtype `auto` by the precision that is fastest here, the same for all engines."""
    if setup.engine.dtype != "auto":
        return setup
    dtype = "bfloat16"
    if any(spec.engine == "torch" for spec in setup.methods):
        import torch

        from workers.torch_engine.models.model import chosen_dtype

        device = torch.device(device_of(setup.engine))
        dtype = chosen_dtype("auto", load_bundle(setup.bundle), device)
    return replace(setup, engine=setup.engine.model_copy(update={"dtype": dtype}))


def with_places(setup: Setup, concurrency: int) -> Setup:
    """Let batches hold `concurrency` sequences."""
    places = max(setup.engine.max_batch, concurrency)
    return replace(setup, engine=setup.engine.model_copy(update={"max_batch": places}))


def with_room(setup: Setup, concurrency: int) -> Setup:
    """Let batches hold `concurrency` sequences and add KV slots for them at the longest context."""
    wide = with_places(setup, concurrency)
    slots = max(wide.engine.kv_slots, wide.engine.max_batch * wide.engine.max_context)
    return replace(wide, engine=wide.engine.model_copy(update={"kv_slots": slots}))


def device_of(engine: EngineConfig) -> str:
    """Return `cpu` or `cuda`, resolving `auto`."""
    if engine.device != "auto":
        return engine.device
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def names(methods: str, flag: str = "--methods") -> list[str]:
    """Split a comma-separated flag. Raises InputError if it is empty or repeats a name."""
    listed = [name.strip() for name in methods.split(",") if name.strip()]
    if not listed or len(set(listed)) != len(listed):
        raise InputError(f"{flag}: name each method once, separated by commas, not {methods!r}")
    return listed


def _specs(config: AppConfig, methods: str | None, bundle: Bundle) -> tuple[MethodSpec, ...]:
    configured = {method.name: method.spec for method in config.methods}
    wanted = list(configured) if methods is None else names(methods)
    return tuple(configured.get(name) or method_of(name, bundle) for name in wanted)


def refuse_too_large(place: Path, weights: float, replicas: int = 1) -> None:
    """Raise InputError if weights of so many bytes in each replica do not fit in the memory."""
    needed, free = replicas * weights, psutil.virtual_memory().available
    if needed > free:
        copies = f" in {replicas} replicas" if replicas > 1 else ""
        raise InputError(
            f"{place}: the weights take at least {needed / 1e9:.1f} GB of memory{copies}, and "
            f"{free / 1e9:.1f} GB are available: choose a smaller model, fewer replicas or a "
            "machine with more memory"
        )


def machine_name() -> str:
    """Return the processor's name, the core count and the widest vector instructions, of x86's,
    that torch may use: two machines of the same name measure comparable times."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    told = {name.strip(): value for name, _, value in (line.partition(":") for line in lines)}
    processor = told.get("model name", platform.processor()).strip() or platform.machine()
    flags = told.get("flags", "").split()
    widest = next((name for name in ("avx512_bf16", "avx512f", "avx2") if name in flags), None)
    instructions = os.environ.get("ATEN_CPU_CAPABILITY") or widest
    return ", ".join(filter(None, [processor, f"{os.cpu_count()} cores", instructions]))


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
