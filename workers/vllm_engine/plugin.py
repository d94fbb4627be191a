"""The plugin that vLLM loads in each process (entry point vllm.general_plugins)."""

from workers.vllm_engine.cpu_kernels import repair
from workers.vllm_engine.lifeline import end_with_parent


def register() -> None:
    """Tie the processes of our engines to their replica, register our Medusa model by its path,
    so that it is imported only when needed, and replace broken kernels. Nothing else changes."""
    from vllm import ModelRegistry

    end_with_parent()
    repair()
    ModelRegistry.register_model(
        "MedusaModel", "workers.vllm_engine.drafting.medusa_model:MedusaModel"
    )
