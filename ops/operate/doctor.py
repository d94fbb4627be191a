"""`specadapt doctor`: this machine, what is installed on it, and what `serve` would choose."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

from ops.common import flags
from ops.common.output import emit, say, table


def doctor(model: flags.Model = None, config: flags.Config = None, json: flags.Json = None) -> None:
    """Show the machine, the versions, and what `serve` would choose here: for a bug report.

    Example: `specadapt doctor`
    """
    import psutil

    from ops.common.settings import describe_machine
    from workers.torch_engine.models.kernels import block_product

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
    replicas = 1 if setup.shared else len(setup.methods)
    engine = with_room_for_contexts(setup.engine, setup.bundle, replicas)
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
