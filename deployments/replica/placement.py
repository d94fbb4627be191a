"""Resources of a method's replicas, their cores, and the share that their engine may use."""

import math
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray

from deployments.head_training.tuning import MachineLock
from schemas import AppConfig, EngineConfig, MethodDeployment, MethodSpec
from workers.bundle import Bundle
from workers.portfolio import grows, part_of
from workers.vllm_engine.adapter_files import check_adapters
from workers.vllm_engine.environment import process_environment
from workers.vllm_engine.versions import SHARED, check_arguments, require, require_release

MEMORY_SHARE = 0.9
"""Of a GPU that a replica has for itself, vLLM's own default: the rest is for what it does not
count, such as CUDA graphs and communication."""

PARALLEL = "tensor_parallel_size"
HIDE_WITHOUT_SHARE = "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"
"""Has Ray hide a node's GPUs from a process that asks for none. Otherwise it leaves all of them
visible, and every such process would decode on the first."""


def resources_of(method: str, config: AppConfig) -> MethodDeployment:
    """Return the resources of a replica that holds `method`."""
    if config.layout == "shared":
        return config.shared
    return next(one for one in config.methods if one.name == method)


def replica_options(
    name: str, resources: MethodDeployment, specs: Sequence[MethodSpec], config: AppConfig
) -> dict[str, Any]:
    """Return the Ray Serve options of deployment `name`: resources, placement and environment.

    A replica sees the GPUs that it asks for and no other. Tensor parallelism takes a placement
    group with a GPU in each bundle, on as few nodes as possible. The replica itself runs no model
    and has the first bundle's CPUs; vLLM starts its workers in the bundles. Raises ValueError
    naming the field if settings contradict each other.
    """
    _check(name, resources, specs, config.engine)
    env = thread_environment(config.engine.threads, alone=has_its_cores(resources, config.engine))
    actor: dict[str, Any] = {"num_cpus": resources.num_cpus, "num_gpus": resources.num_gpus}
    options: dict[str, Any] = {"ray_actor_options": actor} | apart(resources.max_replicas_per_node)
    if _in_vllm(specs, config.engine):
        env |= process_environment(config.engine, shared=len(specs) > 1)
    size = _parallel_size(specs, config.engine)
    if size > 1:
        actor["num_gpus"] = 0
        gpu = {"GPU": 1.0} | _of_type(resources)
        cpus = {"CPU": resources.num_cpus} if resources.num_cpus else {}
        options["placement_group_bundles"] = [gpu | cpus, *[gpu] * (size - 1)]
        options["placement_group_strategy"] = "PACK"
    else:
        if resources.accelerator_type is not None:
            actor["accelerator_type"] = resources.accelerator_type
        env |= {HIDE_WITHOUT_SHARE: "1"}
    actor["runtime_env"] = {"env_vars": env}
    return options


def apart(replicas: int | None) -> dict[str, Any]:
    """Return the option that limits a deployment's replicas per node."""
    return {} if replicas is None else {"max_replicas_per_node": replicas}


def placed_engine(
    resources: MethodDeployment, specs: Sequence[MethodSpec], engine: EngineConfig, rank: int = 0
) -> EngineConfig:
    """Return the engine's settings in a replica with these resources.

    vLLM takes the memory of the replica's share of a GPU, and starts its workers where the replica
    was placed. Of several servers, a replica has that of its rank among the replicas.
    """
    if engine.openai is not None:
        url = engine.openai.urls[rank % len(engine.openai.urls)]
        own = engine.openai.model_copy(update={"urls": (url,)})
        return engine.model_copy(update={"openai": own})
    if not _in_vllm(specs, engine):
        return engine
    placed: dict[str, Any] = {}
    parallel = _parallel_size(specs, engine) > 1
    share = 1.0 if parallel else resources.num_gpus
    if share:
        placed["gpu_memory_utilization"] = round(MEMORY_SHARE * share, 4)
    placed |= engine.vllm
    if parallel:
        placed["distributed_executor_backend"] = "ray"
    return engine.model_copy(update={"vllm": placed})


def check_portfolio(specs: Sequence[MethodSpec], bundle: Bundle, engine: EngineConfig) -> None:
    """Raises ValueError where one engine cannot hold these methods, the bundle has no part that one
    of them drafts with, or the vLLM that is installed lacks one; the message names the fix."""
    engines = sorted({spec.engine for spec in specs})
    if engine.openai is not None and engines != ["vllm"]:
        raise ValueError(
            f"methods: engine.openai's servers decode methods of engine vllm only, not of "
            f"{', '.join(engines)}"
        )
    if len(engines) > 1:
        by_engine = "; ".join(
            f"{name}: {', '.join(spec.name for spec in specs if spec.engine == name)}"
            for name in engines
        )
        raise ValueError(
            f"layout: a shared engine holds methods of one engine, and there are {by_engine}: "
            "leave some out, or choose layout per_method"
        )
    for spec in specs:
        part = part_of(spec)
        if part is not None and engine.openai is None and not grows(part, spec, bundle):
            bundle.part(part)
    if _in_vllm(specs, engine):
        require(specs, bundle)
        check_arguments(engine.vllm)
        if engine.lora_adapters:
            require_release("engine.lora_adapters", SHARED)
    check_adapters(engine, specs)


def thread_environment(count: int, alone: bool = False) -> dict[str, str]:
    """Return the environment of a process with `count` model threads; `alone`: on its own cores."""
    # Ray would set one thread for a fraction of a CPU.
    threads = {"OMP_NUM_THREADS": str(count)}
    if alone:
        # Between operators threads wait awake for some milliseconds: to wake them hundreds of
        # times a step takes longer than the step.
        return threads
    # Two OpenMP processes that spin on the same cores slow each other down a hundredfold, so idle
    # threads sleep.
    return threads | {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}


def has_its_cores(resources: MethodDeployment, engine: EngineConfig) -> bool:
    """Return whether no other replica computes on the cores that this one's threads use."""
    return engine.pin_cores or resources.num_cpus >= engine.threads


def _check(
    name: str, resources: MethodDeployment, specs: Sequence[MethodSpec], engine: EngineConfig
) -> None:
    size, gpus = _parallel_size(specs, engine), resources.num_gpus
    decodes = engine.openai is None
    if size > 1:
        _check_parallel(name, resources, engine)
        return
    if gpus > 1.0 and _in_vllm(specs, engine):
        raise ValueError(
            f"{name}.num_gpus: {gpus:g} GPUs, and vLLM uses one: set "
            f"engine.vllm.tensor_parallel_size to {math.ceil(gpus)}, or num_gpus to 1"
        )
    if gpus > 1.0 and decodes:
        raise ValueError(
            f"{name}.num_gpus: {gpus:g} GPUs, and a replica of the torch engine uses one: set "
            "num_gpus to 1 and max_replicas to the number of GPUs"
        )
    if gpus == 0.0 and engine.device == "cuda" and decodes:
        raise ValueError(
            f"{name}.num_gpus: 0, and engine.device is cuda: set num_gpus to 1, or to the fraction "
            "of a GPU that a replica may take, or engine.device to cpu"
        )
    if gpus > 0.0 and engine.device == "cpu" and decodes:
        raise ValueError(
            f"{name}.num_gpus: {gpus:g}, and engine.device is cpu: set num_gpus to 0, or "
            "engine.device to cuda"
        )
    if gpus == 0.0 and resources.accelerator_type is not None:
        raise ValueError(
            f"{name}.accelerator_type: {resources.accelerator_type}, and num_gpus is 0: set "
            "num_gpus to 1, or leave accelerator_type out"
        )


def _check_parallel(name: str, resources: MethodDeployment, engine: EngineConfig) -> None:
    size, gpus = int(engine.vllm[PARALLEL]), resources.num_gpus
    if gpus not in (0.0, float(size)):
        raise ValueError(
            f"{name}.num_gpus: {gpus:g}, and engine.vllm.tensor_parallel_size {size} takes "
            f"{size} whole GPUs for a replica: leave num_gpus out, or set it to {size}"
        )
    if resources.max_replicas_per_node is not None:
        raise ValueError(
            f"{name}.max_replicas_per_node: Ray places the {size} GPUs of a replica as one group "
            "and counts no such replicas by node: leave it out"
        )
    if engine.device == "cpu":
        raise ValueError(
            f"engine.vllm.tensor_parallel_size: {size} GPUs for {name}, and engine.device is cpu: "
            "set one of the two"
        )


def _parallel_size(specs: Sequence[MethodSpec], engine: EngineConfig) -> int:
    """Return the number of GPUs over which vLLM spreads one replica."""
    size = engine.vllm.get(PARALLEL, 1) if _in_vllm(specs, engine) else 1
    if type(size) is not int or size < 1:
        raise ValueError(f"engine.vllm.{PARALLEL}: expected a number of GPUs, got {size!r}")
    return size


def _of_type(resources: MethodDeployment) -> dict[str, float]:
    """Return Ray's resource for a type of GPU, in the amount that `accelerator_type` asks for."""
    kind = resources.accelerator_type
    return {} if kind is None else {f"accelerator_type:{kind}": 0.001}


def _in_vllm(specs: Sequence[MethodSpec], engine: EngineConfig) -> bool:
    """Return whether replicas load vLLM."""
    return engine.openai is None and all(spec.engine == "vllm" for spec in specs)


class CoresTakenError(ValueError):
    """Too few cores of this machine are free; the message names the fix."""


class PinnedCores:
    """Claim `count` cores and pin all threads of this process to them.

    A claim is the lock of a folder named after the core, so it ends with the process, however that
    ends. Threads that start later inherit the cores. Raises CoresTakenError.
    """

    def __init__(self, count: int, folder: Path | None = None) -> None:
        folder = folder or Path(tempfile.gettempdir()) / f"specadapt-cores-{os.getuid()}"
        usable = sorted(os.sched_getaffinity(0))
        self.locks: dict[int, MachineLock] = {}
        """By core."""
        for core in usable:
            lock = MachineLock(folder / str(core))
            if len(self.locks) < count and lock.taken():
                self.locks[core] = lock
        if len(self.locks) < count:
            raise CoresTakenError(
                f"engine.pin_cores: fewer than {count} of this machine's {len(usable)} cores are "
                "free: run fewer replicas on it, or leave pin_cores out"
            )
        for thread in Path("/proc/self/task").iterdir():
            os.sched_setaffinity(int(thread.name), self.locks)


def pinned_cores(engine: EngineConfig, specs: Sequence[MethodSpec]) -> PinnedCores | None:
    """Return the replica's own cores, None if it has none or decodes elsewhere."""
    if not engine.pin_cores or engine.device == "cuda" or engine.openai or ray.get_gpu_ids():
        return None
    # vLLM's scheduler polls while its worker computes: on the same core it would take half of it.
    scheduler = any(spec.engine == "vllm" for spec in specs)
    return PinnedCores(engine.threads + scheduler)
