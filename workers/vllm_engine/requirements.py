"""Every name in vLLM that we replace, override or read beyond its public interface, and the check
at load that says what a release has changed."""

import dis
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

Names = Mapping[str, tuple[str, ...]]
"""By the path of a function, class or module, as pkgutil.resolve_name takes it."""


@dataclass(frozen=True)
class Requirements:
    """What `uses` of vLLM, in the plural, rest on. named: attributes of classes and modules, and
    names that a function's code has to use. replaced: all parameters, in order, of functions that
    we replace; without self, as below. called: the first parameters of what we call; further ones
    need defaults. otherwise: what else than another release helps."""

    uses: str
    named: Names
    replaced: Names = field(default_factory=dict)
    called: Names = field(default_factory=dict)
    otherwise: str = ""


_ASYNC_LLM, _COLLECTOR = "vllm.v1.engine.async_llm", "RequestOutputCollector"
_RUNNER = "vllm.v1.worker.gpu_model_runner:GPUModelRunner"
_DRAFTING = "vllm.v1.spec_decode"
_PROPOSER = f"{_DRAFTING}.llm_base_proposer:SpecDecodeBaseProposer"
_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"

COLLECTING = Requirements(
    "statistics per step",
    named={
        _ASYNC_LLM: (_COLLECTOR,),
        f"{_ASYNC_LLM}:AsyncLLM.add_request": (_COLLECTOR,),
        f"vllm.v1.engine.output_processor:{_COLLECTOR}": ("put", "get", "get_nowait", "ready"),
    },
)
"""See answer.StepCollector."""

CPU_REPAIRS = Requirements(
    "our repairs of its CPU build",
    named={
        "vllm.utils.cpu_triton_utils": ("_expand_kernel_impl",),
        "vllm.lora.ops.torch_ops.lora_ops": ("bgmv_expand", "bgmv_expand_slice"),
        "torch.compiler": ("load_compiled_function",),
    },
)
"""See plugin.register."""

SHARED = Requirements(
    "several methods in one engine",
    otherwise=", or leave out layout: shared",
    replaced={
        f"{_RUNNER}.propose_draft_token_ids": (
            *("scheduler_output", "sampled_token_ids", "sampling_metadata", "hidden_states"),
            *("sample_hidden_states", "aux_hidden_states", "spec_decode_metadata"),
            *("common_attn_metadata", "slot_mappings"),
        ),
        f"{_RUNNER}._input_fits_in_drafter": ("common_attn_metadata",),
        f"{_PROPOSER}._get_model": (),
    },
    called={
        f"{_PROPOSER}.propose": (
            *("num_speculative_tokens", "target_token_ids", "target_positions"),
            *("target_hidden_states", "next_token_ids", "token_indices_to_sample"),
            *("common_attn_metadata", "sampling_metadata"),
        ),
        f"{_PROPOSER}._create_draft_vllm_config": (),
        f"{_PROPOSER}.load_model": ("target_model",),
        f"{_PROPOSER}.initialize_attn_backend": ("kv_cache_config",),
        f"{_DRAFTING}.ngram_proposer:NgramProposer": ("vllm_config",),
        f"{_DRAFTING}.ngram_proposer:NgramProposer.propose": (
            *("num_speculative_tokens", "sampled_token_ids", "num_tokens_no_spec"),
            "token_ids_cpu",
        ),
        f"{_DRAFTING}.suffix_decoding:SuffixDecodingProposer": ("vllm_config",),
        f"{_DRAFTING}.suffix_decoding:SuffixDecodingProposer.propose": (
            *("num_speculative_tokens", "input_batch", "sampled_token_ids"),
        ),
        f"{_DRAFTING}.medusa:MedusaProposer": ("vllm_config", "device"),
        f"{_DRAFTING}.medusa:MedusaProposer.propose": (
            *("num_speculative_tokens", "target_hidden_states", "sampling_metadata"),
        ),
        f"{_DRAFTING}.eagle:EagleProposer": ("vllm_config", "device", "runner"),
        f"{_DRAFTING}.draft_model:DraftModelProposer": ("vllm_config", "device", "runner"),
        f"{_RUNNER}._dummy_run": ("num_tokens",),
        f"{_RUNNER}._get_positions": ("num_tokens",),
        f"{_RUNNER}._sync_device": (),
        f"{_RUNNER}.get_model": (),
        "vllm.model_executor.model_loader.reload:initialize_layerwise_reload": ("model",),
    },
    named={
        "vllm.v1.worker.gpu_worker:Worker": (
            *("init_device", "compile_or_warm_up_model", "use_v2_model_runner", "model_runner"),
        ),
        _RUNNER: (
            *("drafter", "speculative_config", "vllm_config", "compilation_config", "device"),
            *("model", "requests", "input_batch", "input_ids", "max_model_len", "max_num_tokens"),
        ),
        "vllm.v1.worker.gpu_input_batch:InputBatch": (
            *("req_ids", "vocab_size", "num_tokens_no_spec", "token_ids_cpu"),
            *("num_prompt_tokens", "block_table"),
        ),
        "vllm.v1.worker.block_table:BlockTable": ("block_table", "slot_mapping"),
        "vllm.v1.worker.gpu_input_batch:CachedRequestState": (
            *("sampling_params", "num_computed_tokens", "get_token_id"),
        ),
        _PROPOSER: (
            *("initialize_cudagraph_keys", "dummy_run", "model", "device", "vllm_config"),
            *("block_size", "kv_cache_gid", "_draft_attn_layer_names", "cudagraph_dispatcher"),
            *("max_model_len", "max_num_tokens", "net_num_new_slots_per_request"),
            *("draft_model_config", "eagle3_use_aux_hidden_state", "speculative_config", "method"),
        ),
        f"{_DRAFTING}.suffix_decoding:SuffixDecodingProposer": ("num_speculative_tokens",),
        f"{_DRAFTING}.medusa:MedusaProposer": ("num_speculative_tokens", "device", "model"),
        f"{_DRAFTING}.metadata:SpecDecodeMetadata": ("num_draft_tokens",),
        "vllm.v1.cudagraph_dispatcher:CudagraphDispatcher": ("cudagraph_mode",),
        "vllm.v1.kv_cache_interface:KVCacheConfig": ("kv_cache_groups",),
        "vllm.v1.kv_cache_interface:KVCacheGroupSpec": ("layer_names",),
        "vllm.v1.attention.backend:CommonAttentionMetadata": (
            *("query_start_loc", "query_start_loc_cpu", "seq_lens", "seq_lens_cpu_upper_bound"),
            *("num_reqs", "num_actual_tokens", "max_query_len", "max_seq_len"),
            *("block_table_tensor", "slot_mapping", "causal"),
        ),
        "vllm.v1.core.sched.output:SchedulerOutput": ("num_scheduled_tokens", "finished_req_ids"),
        _SCHEDULER: ("num_spec_tokens", "max_num_running_reqs", "dynamic_sd_lookup"),
        f"{_SCHEDULER}.schedule": ("dynamic_sd_lookup",),
        "vllm.config:SpeculativeConfig": (
            *("disable_padded_drafter_batch", "max_num_new_slots_for_drafting"),
        ),
        "vllm.config:CompilationConfig": ("compile_ranges_endpoints", "cudagraph_mode"),
        "vllm.distributed.parallel_state:GroupCoordinator": (
            *("broadcast_object", "world_size", "cpu_group"),
        ),
        "vllm.v1.engine.core_client:AsyncMPClient": ("call_utility_all_async",),
    },
)
"""See drafting/ and middleware.RequestMethods."""


def refuse_changes(needed: Requirements) -> None:
    """Raise RuntimeError that names everything that we need and this vLLM has not."""
    changed = [*_changed_parameters(needed), *_missing_names(needed)]
    if changed:
        raise RuntimeError(
            f"this vLLM has changed what {needed.uses} rest on: {'; '.join(changed)}. Install a "
            f"supported release (docs/vllm.md){needed.otherwise}"
        )


def _changed_parameters(needed: Requirements) -> Iterator[str]:
    for functions, whole in ((needed.replaced, True), (needed.called, False)):
        for path, expected in functions.items():
            function = _found(path)
            if function is None:
                yield f"there is no {path}"
                continue
            parameters = [
                p for p in inspect.signature(function).parameters.values() if p.name != "self"
            ]
            found = tuple(p.name for p in parameters)
            more = parameters[len(expected) :]
            required = any(p.default is p.empty and p.kind < p.VAR_POSITIONAL for p in more)
            if found[: len(expected)] != expected or required or (whole and more):
                yield f"{path} takes ({', '.join(found)}) instead of ({', '.join(expected)})"


def _missing_names(needed: Requirements) -> Iterator[str]:
    for path, names in needed.named.items():
        known = _names(_found(path))
        yield from (f"{path} has no {name}" for name in names if name not in known)


def _found(path: str) -> Any:
    try:
        return pkgutil.resolve_name(path)
    except (ImportError, AttributeError):
        return None


def _names(owner: Any) -> set[str]:
    """Return the names that a function's code uses, or the attributes of a module or of a class
    and its instances: what it has, declares and assigns."""
    if isinstance(owner, FunctionType):
        return {*inspect.unwrap(owner).__code__.co_names}
    names = {*dir(owner)}
    for kind in getattr(owner, "__mro__", ()):
        names |= vars(kind).get("__annotations__", {}).keys()
        for function in filter(inspect.isfunction, vars(kind).values()):
            code = inspect.unwrap(function).__code__
            names |= {
                one.argval for one in dis.get_instructions(code) if one.opname == "STORE_ATTR"
            }
    return names
