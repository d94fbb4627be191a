"""vLLM's worker process with a portfolio of drafters (AsyncEngineArgs.worker_cls)."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm.platforms import current_platform
from vllm.v1.worker.gpu_worker import Worker

from workers.vllm_engine.drafting.hosting import host_portfolio
from workers.vllm_engine.drafting.portfolio import KEY, PORTFOLIO
from workers.vllm_engine.requirements import SHARED, refuse_changes

if not TYPE_CHECKING and current_platform.is_cpu():
    from vllm.v1.worker.cpu_worker import CPUWorker as Worker

log = logging.getLogger(__name__)


class SharedWorker(Worker):
    """The platform's worker, which drafts for each request by the method that it names."""

    def init_device(self) -> None:
        """Create the worker. Raises RuntimeError in vLLM's second model runner, and where vLLM has
        changed what the drafters need of it."""
        refuse_changes(
            "several methods in one engine", SHARED, otherwise=", or leave out layout: shared"
        )
        super().init_device()
        if self.use_v2_model_runner:
            raise RuntimeError(
                "several methods in one engine need vLLM's first model runner: set "
                "VLLM_USE_V2_MODEL_RUNNER=0"
            )
        config = self.vllm_config.additional_config
        assert isinstance(config, dict)
        portfolio = PORTFOLIO.validate_python(config[KEY])
        self._drafters = host_portfolio(self.model_runner, portfolio)

    def determine_available_memory(self) -> Any:
        """Allocate the drafters' buffers, then measure the memory that is left for KV."""
        self._drafters.reserve()
        return super().determine_available_memory()

    def take_draft_token_ids(self) -> Any:
        """Return the last step's drafts to vLLM's scheduler."""
        self._drafters.read()
        return super().take_draft_token_ids()

    def authors(self, request: str) -> list[str]:
        """Return the drafter of every decode step of an ended request of the adaptive method."""
        adaptive = self._drafters.adaptive
        return [] if adaptive is None else adaptive.authors.take(request)

    def take_acceptance(self) -> list[tuple[str, str, list[int]]]:
        """Return drafts, draft tokens and accepted ones by method and drafter, and forget them."""
        return self._drafters.take_acceptance()

    def drafter_failures(self) -> dict[str, int]:
        """Return how often each drafter failed."""
        return dict(self._drafters.attempts.failures.counts)

    def remember(self, folder: str, key: dict[str, str]) -> None:
        """Let the adaptive method begin with what it has learned before, and store it."""
        if self._drafters.adaptive is not None:
            self._drafters.adaptive.controller.remember(Path(folder), key)

    def exchange_head(self, drafter: str, folder: str) -> None:
        """Load another head into a drafter; see `exchange_weights`."""
        self._drafters.exchange(drafter, Path(folder))

    def compile_or_warm_up_model(self) -> Any:
        """Warm up as vLLM's worker does, name the drafters without CUDA graphs, and time forwards
        for the adaptive method."""
        times = super().compile_or_warm_up_model()
        if eager := self._drafters.eager:
            log.warning("these drafters run without CUDA graphs: %s", ", ".join(eager))
        self._drafters.measure()
        return times
