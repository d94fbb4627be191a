"""The plugin that vLLM loads in each process (entry point vllm.general_plugins)."""

from workers.vllm_engine import compile_cache, cpu_kernels
from workers.vllm_engine.lifeline import end_with_parent


def register() -> None:
    """Tie the processes of our engines to their replica, register our Medusa model by its path,
    so that it is imported only when needed, and repair what is broken in vLLM's CPU build. Nothing
    else changes."""
    from vllm import ModelRegistry

    end_with_parent()
    cpu_kernels.repair()
    compile_cache.repair()
    ModelRegistry.register_model(
        "MedusaModel", "workers.vllm_engine.drafting.medusa_model:MedusaModel"
    )
