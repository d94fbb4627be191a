"""What a command runs with: the configuration file, overridden by its flags."""

from dataclasses import dataclass, replace
from pathlib import Path

from deployments.configuration import ConfigError, validated
from ops.harness.boundary import InputError
from router.fit.speedup import BASELINE, VLLM_BASELINE
from schemas import AppConfig, EngineConfig, MethodSpec
from schemas.yaml_files import read_document
from workers.bundle import Bundle, load_bundle
from workers.methods import get_method
from workers.portfolio import method_of, with_bundle, with_portfolio


@dataclass(frozen=True)
class Setup:
    """What a command loads: which model family, which methods, which resources.

    shared: the methods are served by replicas that host all of them.
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
    """What a service is started with: the YAML configuration, or else the default methods in one
    replica, which starts sooner and takes less memory than one each. Raises InputError."""
    return AppConfig(layout="shared") if file is None else load_config(file)


def resolve(
    config: AppConfig,
    bundle: Path | None = None,
    methods: str | None = None,
    dtype: str | None = None,
    threads: int | None = None,
) -> Setup:
    """The configuration's engine with the flags laid over it; where neither names methods, the
    default ones that the bundle has the parts for.

    Raises InputError where a method is unknown or the bundle is not there.
    """
    overrides = {"dtype": dtype, "threads": threads}
    engine = config.engine.model_copy(update={k: v for k, v in overrides.items() if v is not None})
    if bundle is None:
        config = with_bundle(config)
    folder = bundle or config.bundle
    if not folder.is_dir():
        raise InputError(f"--bundle: {folder} is no folder; give one with a trained model family")
    family = load_bundle(folder)
    config = with_portfolio(config, family)
    return Setup(folder, _specs(config, methods, family), engine, config.layout == "shared")


def with_baseline(setup: Setup) -> Setup:
    """The same set-up with what speedups are over: `naive`, or `vllm_naive` where all methods are
    vLLM's and an engine of another library would be loaded for it alone."""
    vllm_alone = all(spec.engine == "vllm" for spec in setup.methods)
    plain = VLLM_BASELINE if vllm_alone else BASELINE
    if plain in setup.names:
        return setup
    return replace(setup, methods=(get_method(plain), *setup.methods))


def with_dtype(setup: Setup) -> Setup:
    """The same set-up with the precision that its engines compute in, where that is to be measured:
    one of them all, so that what is compared is alike."""
    if setup.engine.dtype != "auto":
        return setup
    dtype = "bfloat16"
    if any(spec.engine == "torch" for spec in setup.methods):
        import torch

        from workers.torch_engine.precision import chosen

        device = torch.device(device_of(setup.engine))
        dtype = chosen("auto", load_bundle(setup.bundle), device, setup.engine.threads)
    return replace(setup, engine=setup.engine.model_copy(update={"dtype": dtype}))


def with_places(setup: Setup, concurrency: int) -> Setup:
    """The same set-up with batches that hold as many sequences as are in flight."""
    places = max(setup.engine.max_batch, concurrency)
    return replace(setup, engine=setup.engine.model_copy(update={"max_batch": places}))


def with_room(setup: Setup, concurrency: int) -> Setup:
    """The same, and KV slots for as many sequences of the longest context."""
    wide = with_places(setup, concurrency)
    slots = max(wide.engine.kv_slots, wide.engine.max_batch * wide.engine.max_context)
    return replace(wide, engine=wide.engine.model_copy(update={"kv_slots": slots}))


def device_of(engine: EngineConfig) -> str:
    """`cpu` or `cuda`, also where the configuration leaves it to the machine."""
    if engine.device != "auto":
        return engine.device
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def names(methods: str, flag: str = "--methods") -> list[str]:
    """The names in a comma-separated flag; raises InputError where there is none or one twice."""
    listed = [name.strip() for name in methods.split(",") if name.strip()]
    if not listed or len(set(listed)) != len(listed):
        raise InputError(f"{flag}: name each method once, separated by commas, not {methods!r}")
    return listed


def _specs(config: AppConfig, methods: str | None, bundle: Bundle) -> tuple[MethodSpec, ...]:
    configured = {method.name: method.spec for method in config.methods}
    wanted = list(configured) if methods is None else names(methods)
    return tuple(configured.get(name) or method_of(name, bundle) for name in wanted)
