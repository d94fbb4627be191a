"""Loading of the engine for some methods."""

from collections.abc import Sequence

from schemas import EngineConfig, MethodSpec
from workers.bundle import Bundle
from workers.engine import Engine
from workers.portfolio import method_of


def load_engine(
    methods: Sequence[MethodSpec | str],
    bundle: Bundle,
    config: EngineConfig,
    replica: str = "local",
) -> Engine:
    """Load one target with a portfolio of methods, named or spelled out.

    Raises ValueError for an unknown method or part, for methods of different engines, and for a
    bundle without a part that a method needs.
    """
    specs = [method_of(m, bundle) if isinstance(m, str) else m for m in methods]
    names = [spec.name for spec in specs]
    if not specs or len(set(names)) != len(names):
        raise ValueError("methods: name at least one method, each of them once")
    engines = {spec.engine for spec in specs}
    if engines == {"replay"}:
        from workers.replay_engine.engine import load_replay_engine

        return load_replay_engine(specs, bundle, config, replica)
    if config.openai is not None:
        if engines != {"vllm"}:
            raise ValueError("engine.openai: servers have methods of engine vllm only")
        from workers.openai_engine.engine import OpenAIEngine

        return OpenAIEngine(specs, bundle, config, replica)
    if engines == {"vllm"}:
        from workers.vllm_engine.versions import require

        require(specs, bundle)
        # after the check: without vLLM this import fails
        from workers.vllm_engine.engine import VllmEngine

        return VllmEngine(specs, bundle, config, replica)
    if engines != {"torch"}:
        raise ValueError(
            f"methods: one engine holds methods of one kind, not of {', '.join(sorted(engines))}"
        )
    # torch takes seconds to import, and callers that only name methods do not need it
    from workers.torch_engine.engine import TorchEngine

    return TorchEngine(specs, bundle, config, replica)
