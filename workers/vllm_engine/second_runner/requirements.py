"""What of vLLM's second runner our speculator depends on, and configurations that it refuses."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from vllm.config import VllmConfig
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import NewRequestData, SchedulerOutput
from vllm.v1.spec_decode.suffix_decoding import SuffixDecodingProposer
from vllm.v1.worker.gpu.attn_utils import build_slot_mappings_by_layer
from vllm.v1.worker.gpu.input_batch import InputBatch
from vllm.v1.worker.gpu.model_runner import GPUModelRunner
from vllm.v1.worker.gpu.model_states.interface import ModelState
from vllm.v1.worker.gpu.spec_decode.eagle.speculator import EagleSpeculator
from vllm.v1.worker.gpu.spec_decode.ngram.speculator import NgramGPUSpeculator
from vllm.v1.worker.gpu.spec_decode.speculator import BaseSpeculator

from workers.vllm_engine.second_runner.scheduler import SharedScheduler

STEP = (
    *("input_batch", "attn_metadata", "slot_mappings", "last_hidden_states", "aux_hidden_states"),
    *("num_sampled", "num_rejected", "last_sampled", "next_prefill_tokens", "temperature", "seeds"),
    *("dp_sync_state", "dummy_run", "skip_attn_for_dummy_run", "mm_inputs", "is_profile"),
    "num_speculative_tokens",
)
PARAMETERS: Mapping[Callable[..., Any], tuple[str, ...]] = {
    BaseSpeculator.propose: STEP,
    EagleSpeculator.propose: STEP,
    NgramGPUSpeculator.propose: STEP,
    EagleSpeculator: ("vllm_config", "device"),
    NgramGPUSpeculator: ("vllm_config", "device", "req_states"),
    SuffixDecodingProposer: ("vllm_config",),
    SuffixDecodingProposer.propose: (
        *("num_speculative_tokens", "input_batch", "sampled_token_ids", "slot_mappings"),
    ),
    GPUModelRunner.add_requests: ("scheduler_output",),
    GPUModelRunner.prepare_attn: ("input_batch",),
    ModelState.prepare_attn: (
        *("input_batch", "cudagraph_mode", "block_tables", "slot_mappings", "attn_groups"),
        *("kv_cache_config", "for_capture", "ubatch_idx"),
    ),
    build_slot_mappings_by_layer: ("slot_mappings", "kv_cache_config"),
    AsyncScheduler._update_after_schedule: ("scheduler_output",),
    AsyncScheduler.update_draft_token_ids: ("draft_token_ids",),
}
"""Parameters of what we call or replace, in order, without self."""
FIELDS: Mapping[type, tuple[str, ...]] = {
    NewRequestData: ("req_id", "prefill_token_ids", "prompt_len", "sampling_params"),
    SchedulerOutput: ("scheduled_new_reqs", "num_scheduled_tokens"),
}
"""Fields and properties of dataclasses that we read."""
BATCH = (
    *("req_ids", "num_reqs", "num_reqs_after_padding", "idx_mapping", "idx_mapping_np"),
    *("expanded_idx_mapping", "expanded_local_pos", "num_scheduled_tokens", "num_tokens"),
    *("num_tokens_after_padding", "num_draft_tokens", "num_draft_tokens_per_req"),
    *("query_start_loc", "query_start_loc_np", "seq_lens", "seq_lens_cpu_upper_bound"),
    *("dcp_local_seq_lens", "num_computed_tokens_np", "prefill_len_np"),
    *("num_computed_prefill_tokens_np", "is_prefilling_np", "has_prefill"),
    *("decode_graph_eligible", "input_ids", "positions", "is_padding", "logits_indices"),
    *("cu_num_logits", "cu_num_logits_np", "has_structured_output_reqs", "prompt_lens"),
    *("max_seq_len_np", "max_query_len", "fast_prefill", "dcp_local_seq_lens_cpu_upper_bound"),
    "prefill_runs_as_decode_np",
)
"""All fields of InputBatch: `select_rows` would leave a further one as it is."""
RUNNER = ("speculator", "req_states", "vllm_config", "device")
STATES = (
    *("req_id_to_index", "max_num_reqs", "max_model_len", "num_speculative_steps"),
    *("total_len", "all_token_ids", "draft_tokens"),
)
"""Attributes of a runner that has loaded nothing yet, and of its RequestState."""


def refuse_misfit(runner: GPUModelRunner) -> None:
    """Raise RuntimeError that names all that has changed in vLLM, or the first field of its
    configuration that the second runner does not share."""
    config = runner.vllm_config
    if config.scheduler_config.get_scheduler_cls() is not SharedScheduler:
        raise RuntimeError(
            "the engine's methods are configured for vLLM's first model runner: set "
            "VLLM_USE_V2_MODEL_RUNNER=0"
        )
    changed = [*_changed_parameters(), *_changed_fields(), *_missing_attributes(runner)]
    if changed:
        raise RuntimeError(
            "several methods in this vLLM's second model runner do not work, since names that "
            f"they rest on have changed: {'; '.join(changed)}. Unset VLLM_USE_V2_MODEL_RUNNER"
        )
    for field in _unshared(config):
        raise RuntimeError(
            f"{field}: several methods in vLLM's second model runner do not work with it: leave "
            "it out, or unset VLLM_USE_V2_MODEL_RUNNER"
        )


def _changed_parameters() -> Iterator[str]:
    for function, expected in PARAMETERS.items():
        found = [name for name in inspect.signature(function).parameters if name != "self"]
        if tuple(found[: len(expected)]) != expected or _required(function, len(expected)):
            name = f"{function.__module__}.{function.__qualname__}"
            yield f"{name} takes {', '.join(found)} instead of {', '.join(expected)}"


def _required(function: Callable[..., Any], known: int) -> bool:
    """Return whether a function has further parameters without a default."""
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
    return any(p.default is p.empty and p.kind < p.VAR_POSITIONAL for p in parameters[known:])


def _changed_fields() -> Iterator[str]:
    for owner, names in FIELDS.items():
        for name in sorted(set(names) - _names(owner) - set(dir(owner))):
            yield f"{owner.__qualname__} has no {name}"
    for name in sorted(_names(InputBatch) ^ set(BATCH)):
        yield f"InputBatch {'has no' if name in BATCH else 'has a new'} {name}"


def _names(owner: type) -> set[str]:
    return {field.name for field in fields(owner)}


def _missing_attributes(runner: GPUModelRunner) -> Iterator[str]:
    states = getattr(runner, "req_states", None)
    for owner, names in ((runner, RUNNER), (states, STATES)):
        for name in names:
            if not hasattr(owner, name):
                yield f"{type(owner).__name__} has no {name}"


def _unshared(config: VllmConfig) -> Iterator[str]:
    parallel, drafting = config.parallel_config, config.speculative_config
    for kind in ("pipeline", "data", "decode_context", "prefill_context"):
        if getattr(parallel, f"{kind}_parallel_size") > 1:
            yield f"{kind}_parallel_size"
    if config.watermark_config is not None:
        yield "watermark_config"
    if drafting is not None and drafting.enable_adaptive_verification:
        yield "speculative_config.enable_adaptive_verification"
    if drafting is not None and drafting.draft_sample_method != "greedy":
        yield f"speculative_config.draft_sample_method {drafting.draft_sample_method}"
