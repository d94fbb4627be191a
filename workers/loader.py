"""Loading of the engine for some methods."""

import logging
import os
from collections.abc import Sequence
from importlib import import_module

from schemas import EngineConfig, MethodSpec
from workers.bundle import Bundle
from workers.engine import Engine
from workers.portfolio import method_of

log = logging.getLogger(__name__)

ENGINE_FOR_TESTS = "SPECADAPT_TEST_ENGINE"
"""Environment variable, for tests only: `module:function` of a loader in the place of this one. No
configuration file and no request sets it. Unlike a patch, it reaches the processes that Ray starts.
"""


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
    if named := os.environ.get(ENGINE_FOR_TESTS):
        log.warning("%s=%s: no model runs", ENGINE_FOR_TESTS, named)
        module, _, function = named.partition(":")
        made: Engine = getattr(import_module(module), function)(specs, bundle, config, replica)
        return made
    engines = {spec.engine for spec in specs}
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
