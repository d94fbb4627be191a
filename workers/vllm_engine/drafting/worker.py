"""vLLM's worker process with a portfolio of drafters (AsyncEngineArgs.worker_cls), and the names
in vLLM that they rest on."""

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm.model_executor.model_loader.reload import initialize_layerwise_reload
from vllm.platforms import current_platform
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.spec_decode.draft_model import DraftModelProposer
from vllm.v1.spec_decode.eagle import EagleProposer
from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer
from vllm.v1.spec_decode.medusa import MedusaProposer
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata
from vllm.v1.spec_decode.ngram_proposer import NgramProposer
from vllm.v1.spec_decode.suffix_decoding import SuffixDecodingProposer
from vllm.v1.worker.gpu_input_batch import CachedRequestState
from vllm.v1.worker.gpu_model_runner import GPUModelRunner
from vllm.v1.worker.gpu_worker import Worker

from workers.vllm_engine.drafting.hosting import host_portfolio
from workers.vllm_engine.drafting.portfolio import KEY, Portfolio

if not TYPE_CHECKING and current_platform.is_cpu():
    from vllm.v1.worker.cpu_worker import CPUWorker as Worker

log = logging.getLogger(__name__)


class SharedWorker(Worker):
    """The platform's worker, which drafts for each request by the method that it names."""

    def init_device(self) -> None:
        """Create the worker. Raises RuntimeError in vLLM's second model runner, and where vLLM has
        changed what the drafters need of it."""
        super().init_device()
        config = self.vllm_config.additional_config
        assert isinstance(config, dict)
        portfolio = Portfolio.from_config(config[KEY])
        self._drafters = None
        if self.use_v2_model_runner:
            raise RuntimeError(
                "several methods in one engine need vLLM's first model runner: set "
                "VLLM_USE_V2_MODEL_RUNNER=0"
            )
        if portfolio.methods:
            refuse_changes(self.model_runner)
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

    def remember(self, folder: str, key: dict[str, str]) -> None:
        """Let the adaptive method begin with what it has learned before, and store it."""
        if self._drafters is not None:
            self._drafters.remember(Path(folder), key)

    def exchange_head(self, drafter: str, folder: str) -> None:
        """Load another head into a drafter; see `exchange_weights`."""
        assert self._drafters is not None
        self._drafters.exchange(drafter, Path(folder))

    def compile_or_warm_up_model(self) -> Any:
        """Warm up as vLLM's worker does, name the drafters without CUDA graphs, and time forwards
        for the adaptive method."""
        times = super().compile_or_warm_up_model()
        if self._drafters is not None:
            if eager := self._drafters.eager:
                log.warning("these drafters run without CUDA graphs: %s", ", ".join(eager))
            self._drafters.measure()
        return times


REPLACED: Mapping[Callable[..., Any], tuple[str, ...]] = {
    GPUModelRunner.propose_draft_token_ids: (
        *("scheduler_output", "sampled_token_ids", "sampling_metadata", "hidden_states"),
        *("sample_hidden_states", "aux_hidden_states", "spec_decode_metadata"),
        *("common_attn_metadata", "slot_mappings"),
    ),
    GPUModelRunner._input_fits_in_drafter: ("common_attn_metadata",),
    SpecDecodeBaseProposer._get_model: (),
}
"""All parameters, in order, of what we replace; without self, as below."""
CALLED: Mapping[Callable[..., Any], tuple[str, ...]] = {
    SpecDecodeBaseProposer.propose: (
        *("num_speculative_tokens", "target_token_ids", "target_positions"),
        *("target_hidden_states", "next_token_ids", "token_indices_to_sample"),
        *("common_attn_metadata", "sampling_metadata"),
    ),
    SpecDecodeBaseProposer._create_draft_vllm_config: (),
    SpecDecodeBaseProposer.load_model: ("target_model",),
    NgramProposer: ("vllm_config",),
    NgramProposer.propose: (
        *("num_speculative_tokens", "sampled_token_ids", "num_tokens_no_spec", "token_ids_cpu"),
    ),
    SuffixDecodingProposer: ("vllm_config",),
    SuffixDecodingProposer.propose: ("num_speculative_tokens", "input_batch", "sampled_token_ids"),
    MedusaProposer: ("vllm_config", "device"),
    MedusaProposer.propose: ("num_speculative_tokens", "target_hidden_states", "sampling_metadata"),
    EagleProposer: ("vllm_config", "device", "runner"),
    DraftModelProposer: ("vllm_config", "device", "runner"),
    GPUModelRunner._dummy_run: ("num_tokens",),
    GPUModelRunner._get_positions: ("num_tokens",),
    GPUModelRunner._sync_device: (),
    GPUModelRunner.get_model: (),
    initialize_layerwise_reload: ("model",),
}
"""The first parameters of what we call. Further ones need defaults."""
NAMES: Mapping[type, tuple[str, ...]] = {
    CommonAttentionMetadata: (
        *("query_start_loc", "query_start_loc_cpu", "seq_lens", "seq_lens_cpu_upper_bound"),
        *("num_reqs", "num_actual_tokens", "max_query_len", "max_seq_len", "block_table_tensor"),
        *("slot_mapping", "causal"),
    ),
    SpecDecodeMetadata: ("num_draft_tokens",),
    SchedulerOutput: ("num_scheduled_tokens", "finished_req_ids"),
    CachedRequestState: ("sampling_params", "num_computed_tokens", "get_token_id"),
    SpecDecodeBaseProposer: ("initialize_attn_backend", "initialize_cudagraph_keys", "dummy_run"),
}
"""Fields and methods that we read, call or pass on."""
RUNNER = (
    *("drafter", "speculative_config", "vllm_config", "device", "requests", "input_batch"),
    *("input_ids", "max_model_len", "max_num_tokens", "max_num_reqs"),
)
BATCH = (*("req_ids", "vocab_size", "num_tokens_no_spec", "token_ids_cpu", "num_prompt_tokens"),)
"""Attributes of a runner that has loaded nothing yet, and of its input batch."""


def refuse_changes(runner: GPUModelRunner) -> None:
    """Raise RuntimeError that names everything our drafters need and this vLLM has not."""
    changed = [*_changed_parameters(), *_missing_names(runner)]
    if changed:
        raise RuntimeError(
            "several methods in one engine do not work with this vLLM, since names that they rest "
            f"on have changed: {'; '.join(changed)}. Install a supported release (docs/vllm.md), "
            "or leave out layout: shared"
        )


def _changed_parameters() -> Iterator[str]:
    for functions, whole in ((REPLACED, True), (CALLED, False)):
        for function, expected in functions.items():
            parameters = [
                p for p in inspect.signature(function).parameters.values() if p.name != "self"
            ]
            found = tuple(p.name for p in parameters)
            more = parameters[len(expected) :]
            needed = any(p.default is p.empty and p.kind < p.VAR_POSITIONAL for p in more)
            if found[: len(expected)] != expected or needed or (whole and more):
                name = f"{function.__module__}.{function.__qualname__}"
                yield f"{name} takes ({', '.join(found)}) instead of ({', '.join(expected)})"


def _missing_names(runner: GPUModelRunner) -> Iterator[str]:
    for owner, names in NAMES.items():
        known = {*dir(owner), *getattr(owner, "__annotations__", ())}
        yield from (f"{owner.__qualname__} has no {name}" for name in names if name not in known)
    batch = getattr(runner, "input_batch", None)
    for held, names in ((runner, RUNNER), (batch, BATCH)):
        for name in names:
            if not hasattr(held, name):
                yield f"{type(held).__name__} has no {name}"
