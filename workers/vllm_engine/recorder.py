"""The stat logger through which vLLM's scheduler tells its load."""

from typing import Any

from vllm.config import VllmConfig
from vllm.v1.metrics.loggers import StatLoggerBase

from workers.engine_load import EngineLoad


class Recorder(StatLoggerBase):
    """Note the scheduler's figures of every iteration in an engine's load."""

    def __init__(self, load: EngineLoad, config: VllmConfig, _engine_index: int) -> None:
        self._load, self._config = load, config

    def record(
        self,
        scheduler_stats: Any,
        iteration_stats: Any,  # noqa: ARG002
        mm_cache_stats: Any = None,  # noqa: ARG002
        engine_idx: int = 0,  # noqa: ARG002
    ) -> None:
        if scheduler_stats is not None:
            stats = scheduler_stats
            self._load.iterated(
                stats.num_running_reqs, stats.num_waiting_reqs, stats.kv_cache_usage
            )

    def log_engine_initialized(self) -> None:
        cache = self._config.cache_config
        self._load.slots = (cache.num_gpu_blocks or 0) * (cache.block_size or 0)
