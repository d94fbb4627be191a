"""vLLM's scheduler of an engine that holds several methods (AsyncEngineArgs.scheduler_cls)."""

from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler


class SharedScheduler(Scheduler):
    """Schedule only the draft tokens that the worker returns."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Without a schedule vLLM gives a request whose prompt is cached but for one token void
        # drafts, which a plain request would verify too. It is set here, because vLLM's first model
        # runner has no full CUDA graphs if speculative_config names one
        # (VllmConfig._maybe_override_dynamic_sd_cudagraph_mode).
        self.dynamic_sd_lookup = [self.num_spec_tokens] * (self.max_num_running_reqs + 1)
