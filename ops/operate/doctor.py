"""`specadapt doctor`: this machine, what is installed on it, and what `serve` would choose."""

from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from ops.common import flags
from ops.common.boundary import InputError
from ops.common.output import emit, say, table


def doctor(  # noqa: PLR0913 - its parameters are flags
    model: flags.Model = None,
    config: flags.Config = None,
    gpu_plan: Annotated[
        str | None,
        flags.option(
            "--gpu-plan",
            "show instead what a machine with such GPUs would start, from each config.json: "
            "nvidia-a100, nvidia-h100, nvidia-h200, nvidia-l4 or nvidia-l40s",
            "GPU",
        ),
    ] = None,
    named: Annotated[str | None, flags.option("--model", "the same as MODEL", "MODEL")] = None,
    speculator: flags.Speculator = None,
    gpus: Annotated[
        int | None,
        flags.option("--gpus", "GPUs of that machine  [default: the fewest]", "N", min=1),
    ] = None,
    json: flags.Json = None,
) -> None:
    """Show the machine, the versions, and what `serve` would choose here: for a bug report.

    Example: `specadapt doctor --gpu-plan nvidia-h100 --model Qwen/Qwen3-8B`
    """
    import psutil

    from ops.common.settings import describe_machine, load_config
    from workers.torch_engine.models.kernels import block_product

    model = model or named
    if gpu_plan is not None:
        from ops.operate import gpu_plan as planning

        given = load_config(config)
        models = planning.planned_bundle(model, speculator or (), given.bundle)
        plan = planning.gpu_plan(gpu_plan, gpus, given if config else None, models)
        emit(plan, lambda: planning.tables_of(plan), json)
        return
    if speculator or gpus:
        raise InputError("--speculator, --gpus: give --gpu-plan too")
    machine, memory = describe_machine(), psutil.virtual_memory()
    figures: dict[str, Any] = {
        "SpecAdapt": version("specadapt"),
        "Python": machine["python"],
        "system": machine["system"],
        "processor": machine["machine"],
        "memory": f"{memory.available / 1e9:.1f} GB available of {memory.total / 1e9:.1f}",
        "GPUs": ", ".join(_gpus()) or "none",
        **machine["libraries"],
        "4-bit kernels": "built" if block_product.is_built() else block_product.NOT_BUILT,
        "vLLM's methods": _vllm(),
    }
    try:
        figures |= _choice(model, config)
    except ValueError as why:
        figures["`serve` would refuse"] = str(why)
    rows = [[name, said or "not installed"] for name, said in figures.items()]
    emit(figures, lambda: [table("What `serve` would run on", ["", ""], rows)], json)


def _choice(model: str | None, config: Path | None) -> dict[str, str]:
    """Return what `serve` would run. Raises ValueError for what it would refuse."""
    from ops.common.settings import resolve, served_config, with_dtype
    from ops.models.bundle.sources import bundle_of
    from ops.operate.capacity import with_room_for_contexts

    bundle = None if model is None else bundle_of(model, say)
    setup = with_dtype(resolve(served_config(config), bundle))
    engine = with_room_for_contexts(setup)
    return {
        "bundle": str(setup.bundle),
        "dtype": engine.dtype,
        "methods": ", ".join(setup.names),
        "context": f"{engine.max_context:,} tokens, {engine.max_batch} requests in a batch",
    }


def _gpus() -> list[str]:
    import torch

    return [
        f"{torch.cuda.get_device_name(index)} ({torch.cuda.mem_get_info(index)[1] / 1e9:.0f} GB)"
        for index in range(torch.cuda.device_count())
    ]


def _vllm() -> str:
    from workers.vllm_engine.versions import SUPPORTED, require_release

    try:
        require_release("each", SUPPORTED)
    except ValueError as why:
        return str(why)
    return "can be served"
