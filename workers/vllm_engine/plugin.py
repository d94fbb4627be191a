"""What vLLM loads in each of its processes (entry point vllm.general_plugins)."""

from workers.vllm_engine.cpu_kernels import repair
from workers.vllm_engine.lifeline import end_with_parent


def register() -> None:
    """Tie the processes of our engines to their replica, name our Medusa model in vLLM's registry,
    by its path: nothing is imported before a Medusa head is loaded, and repair a kernel. Other
    models, methods and engines stay as they are."""
    from vllm import ModelRegistry

    end_with_parent()
    repair()
    ModelRegistry.register_model(
        "MedusaModel", "workers.vllm_engine.drafting.medusa_model:MedusaModel"
    )
