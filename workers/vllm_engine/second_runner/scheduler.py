"""vLLM's scheduler with each request's number of draft tokens: AsyncEngineArgs.scheduler_cls."""

from typing import Any

from vllm.config import VllmConfig
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import DraftTokenIds
from vllm.v1.request import Request

from workers.vllm_engine.drafting.portfolio import KEY, Portfolio, method_named


class SharedScheduler(AsyncScheduler):
    """Schedule as many draft tokens of a request as its method drafts.

    vLLM schedules the engine's number for all requests, ahead of the drafts. A method's number is
    known as early: it depends on the method and the batch. Works with and without async scheduling.
    """

    def __init__(self, vllm_config: VllmConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(vllm_config, *args, **kwargs)
        assert isinstance(vllm_config.additional_config, dict)
        self._portfolio = Portfolio.from_config(vllm_config.additional_config[KEY])

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        """Leave each request its own placeholders for the drafts of this step."""
        super()._update_after_schedule(scheduler_output)
        batch = len(scheduler_output.num_scheduled_tokens)
        for request_id in scheduler_output.num_scheduled_tokens:
            request = self.requests[request_id]
            tokens = self._tokens(request, batch)
            request.spec_token_ids = request.spec_token_ids[:tokens]

    def update_draft_token_ids(self, draft_token_ids: DraftTokenIds) -> None:
        """Take each request's own number of draft tokens, without async scheduling."""
        batch = len(draft_token_ids.req_ids)
        for request_id, drafted in zip(
            draft_token_ids.req_ids, draft_token_ids.draft_token_ids, strict=True
        ):
            request = self.requests.get(request_id)
            if request is not None:
                del drafted[self._tokens(request, batch) :]
        super().update_draft_token_ids(draft_token_ids)

    def _tokens(self, request: Request, batch: int) -> int:
        params = request.sampling_params
        method = None if params is None else method_named(params.extra_args)
        drafting = None if method is None else self._portfolio.methods.get(method)
        return 0 if drafting is None else drafting.schedule.gamma(batch)
