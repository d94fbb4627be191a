"""What vLLM loads in each of its processes (entry point vllm.general_plugins)."""


def register() -> None:
    """Name our Medusa model in vLLM's registry, by its path: nothing is imported before a Medusa
    head is loaded. Other models and methods stay as they are."""
    from vllm import ModelRegistry

    ModelRegistry.register_model(
        "MedusaModel", "workers.vllm_engine.drafting.medusa_model:MedusaModel"
    )
