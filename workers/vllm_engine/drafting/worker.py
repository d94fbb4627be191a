"""vLLM's worker process with a portfolio of drafters: AsyncEngineArgs.worker_cls."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm.platforms import current_platform
from vllm.v1.worker.gpu_worker import Worker

from workers.vllm_engine.drafting.hosting import host_portfolio
from workers.vllm_engine.drafting.portfolio import KEY, Portfolio

if not TYPE_CHECKING and current_platform.is_cpu():
    from vllm.v1.worker.cpu_worker import CPUWorker as Worker


class SharedWorker(Worker):
    """The platform's worker, which drafts for each request by the method that it names."""

    def init_device(self) -> None:
        """Create the worker, in either model runner. Raises RuntimeError for a configuration that
        the second one does not share."""
        super().init_device()
        config = self.vllm_config.additional_config
        assert isinstance(config, dict)
        portfolio = Portfolio.from_config(config[KEY])
        self._drafters = None
        if self.use_v2_model_runner:
            from workers.vllm_engine.second_runner.speculators import host_second_runner

            host_second_runner(self.model_runner, portfolio)
        elif portfolio.methods:
            self._drafters = host_portfolio(self.model_runner, portfolio)

    def authors(self, request: str) -> list[str]:
        """Return the drafters of an ended request; see `Drafters.authors`."""
        return [] if self._drafters is None else self._drafters.authors(request)

    def take_acceptance(self) -> list[tuple[str, str, list[int]]]:
        """Return drafts, draft tokens and accepted ones by method and drafter, and forget them."""
        return [] if self._drafters is None else self._drafters.take_acceptance()

    def drafter_failures(self) -> dict[str, int]:
        """Return how often each drafter failed."""
        return {} if self._drafters is None else self._drafters.failures

    def exchange_head(self, drafter: str, folder: str) -> None:
        """Load another head into a drafter; see `exchange_weights`. Raises RuntimeError in the
        second model runner."""
        if self._drafters is None:
            raise RuntimeError("heads are exchanged in vLLM's first model runner only")
        self._drafters.exchange(drafter, Path(folder))

    def compile_or_warm_up_model(self) -> Any:
        """Warm up as vLLM's worker does, and time forwards for the adaptive method."""
        times = super().compile_or_warm_up_model()
        if self._drafters is not None:
            self._drafters.measure()
        return times
