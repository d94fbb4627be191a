"""Every name in vLLM that we replace, override or read beyond its public interface, and the check
at load that says what a release has changed.

A line has the path of a class, module or function, as pkgutil.resolve_name takes it. Behind it are
attributes, or names that the function's code has to use; or in brackets its parameters in order,
without self. `...` stands for further ones with defaults, in functions that we call and do not
replace. Indented lines continue the one before.
"""

import dis
import inspect
import pkgutil
import re
from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import Any

COLLECTOR = """
vllm.v1.engine.async_llm RequestOutputCollector
vllm.v1.engine.async_llm:AsyncLLM.add_request RequestOutputCollector
vllm.v1.engine.output_processor:RequestOutputCollector put get get_nowait ready
"""
"""Of answer.StepCollector."""

CPU_REPAIRS = """
vllm.utils.cpu_triton_utils _expand_kernel_impl
vllm.lora.ops.torch_ops.lora_ops bgmv_expand bgmv_expand_slice
torch.compiler load_compiled_function
"""
"""Of plugin.register."""

_RUNNER = "vllm.v1.worker.gpu_model_runner:GPUModelRunner"
_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"
_DRAFTING = "vllm.v1.spec_decode"
_PROPOSER = f"{_DRAFTING}.llm_base_proposer:SpecDecodeBaseProposer"

SHARED = f"""
{_RUNNER} drafter speculative_config vllm_config compilation_config scheduler_config model_config
    kv_cache_config device model requests input_batch query_start_loc max_model_len max_num_tokens
    draft_token_ids_cpu draft_token_ids_event _get_eagle3_aux_layers_from_config
{_RUNNER}.propose_draft_token_ids(scheduler_output, sampled_token_ids, sampling_metadata,
    hidden_states, sample_hidden_states, aux_hidden_states, spec_decode_metadata,
    common_attn_metadata, slot_mappings)
{_RUNNER}._input_fits_in_drafter(common_attn_metadata)
{_RUNNER}._dummy_run(num_tokens, cudagraph_runtime_mode, force_attention, uniform_decode,
    allow_microbatching, skip_eplb, is_profile, create_mixed_batch, remove_lora, is_graph_capturing,
    num_active_loras, profile_seq_lens, ...)
{_RUNNER}.take_draft_token_ids()
{_RUNNER}.get_model(...)
vllm.v1.worker.gpu_worker:Worker init_device compile_or_warm_up_model determine_available_memory
    take_draft_token_ids model_runner use_v2_model_runner
vllm.v1.worker.gpu_input_batch:InputBatch req_ids vocab_size num_tokens_no_spec token_ids_cpu
    num_prompt_tokens block_table
vllm.v1.worker.gpu_input_batch:CachedRequestState sampling_params num_computed_tokens
vllm.v1.worker.block_table:BlockTable block_table block_size
vllm.v1.worker.block_table:MultiGroupBlockTable block_tables
{_PROPOSER} initialize_cudagraph_keys dummy_run model device vllm_config block_size kv_cache_gid
    _draft_attn_layer_names cudagraph_dispatcher max_model_len max_num_tokens method
    net_num_new_slots_per_request draft_model_config eagle3_use_aux_hidden_state speculative_config
    max_batch_size pass_hidden_states_to_model dtype
{_PROPOSER}.propose(num_speculative_tokens, target_token_ids, target_positions,
    target_hidden_states, next_token_ids, token_indices_to_sample, common_attn_metadata,
    sampling_metadata, ...)
{_PROPOSER}._get_model()
{_PROPOSER}._create_draft_vllm_config(...)
{_PROPOSER}.load_model(target_model, ...)
{_PROPOSER}.initialize_attn_backend(kv_cache_config, ...)
{_DRAFTING}.eagle:EagleProposer(vllm_config, device, runner, ...)
{_DRAFTING}.draft_model:DraftModelProposer(vllm_config, device, runner, ...)
{_DRAFTING}.ngram_proposer:NgramProposer(vllm_config, ...)
{_DRAFTING}.ngram_proposer:NgramProposer.propose(num_speculative_tokens, sampled_token_ids,
    num_tokens_no_spec, token_ids_cpu, ...)
{_DRAFTING}.suffix_decoding:SuffixDecodingProposer num_speculative_tokens
{_DRAFTING}.suffix_decoding:SuffixDecodingProposer(vllm_config, ...)
{_DRAFTING}.suffix_decoding:SuffixDecodingProposer.propose(num_speculative_tokens, input_batch,
    sampled_token_ids, ...)
{_DRAFTING}.medusa:MedusaProposer num_speculative_tokens device model
{_DRAFTING}.medusa:MedusaProposer(vllm_config, device, ...)
{_DRAFTING}.medusa:MedusaProposer.propose(num_speculative_tokens, target_hidden_states,
    sampling_metadata, ...)
{_DRAFTING}.metadata:SpecDecodeMetadata num_draft_tokens
vllm.v1.attention.backend:CommonAttentionMetadata query_start_loc query_start_loc_cpu seq_lens
    seq_lens_cpu_upper_bound num_reqs num_actual_tokens max_query_len max_seq_len
    block_table_tensor slot_mapping causal
vllm.v1.kv_cache_interface:KVCacheConfig kv_cache_groups num_blocks
vllm.v1.kv_cache_interface:KVCacheGroupSpec layer_names
vllm.v1.cudagraph_dispatcher:CudagraphDispatcher cudagraph_mode
{_SCHEDULER} num_spec_tokens max_num_running_reqs dynamic_sd_lookup
{_SCHEDULER}.schedule dynamic_sd_lookup
vllm.v1.core.sched.output:SchedulerOutput num_scheduled_tokens finished_req_ids
vllm.config:SpeculativeConfig disable_padded_drafter_batch max_num_new_slots_for_drafting
vllm.config:CompilationConfig compile_ranges_endpoints cudagraph_mode
vllm.distributed.parallel_state:GroupCoordinator broadcast_object world_size rank_in_group
    cpu_group
vllm.model_executor.models.interfaces:SupportsEagle3 get_eagle3_default_aux_hidden_state_layers
vllm.utils.torch_utils:async_tensor_h2d(data, device, ...)
vllm.model_executor.model_loader.reload:initialize_layerwise_reload(model, ...)
vllm.v1.engine.core_client:AsyncMPClient call_utility_all_async
"""
"""Of drafting/ and middleware.RequestMethods."""


def refuse_changes(uses: str, needed: str, otherwise: str = "") -> None:
    """Raise RuntimeError that names everything that our uses of vLLM need and this release has not.

    uses: what they are, in the plural. otherwise: what else than another release helps.
    """
    changed = [*_changes(needed)]
    if changed:
        raise RuntimeError(
            f"this vLLM has changed what {uses} rest on: {'; '.join(changed)}. Install a supported "
            f"release (docs/vllm.md){otherwise}"
        )


def _changes(needed: str) -> Iterator[str]:
    for line in re.sub(r"\n +", " ", needed.strip()).splitlines():
        path, *names = re.findall(r"[^\s,()]+", line)
        try:
            found = pkgutil.resolve_name(path)
        except (ImportError, AttributeError):
            yield f"there is no {path}"
            continue
        if "(" in line:
            yield from _other_parameters(path, found, names)
        else:
            known = _names(found)
            yield from (f"{path} has no {name}" for name in names if name not in known)


def _other_parameters(path: str, function: Any, names: Sequence[str]) -> Iterator[str]:
    expected = [name for name in names if name != "..."]
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
    found, more = [p.name for p in parameters], parameters[len(expected) :]
    needed = any(p.default is p.empty and p.kind < p.VAR_POSITIONAL for p in more)
    if found[: len(expected)] != expected or needed or (more and "..." not in names):
        yield f"{path} takes ({', '.join(found)}) instead of ({', '.join(names)})"


def _names(owner: Any) -> set[str]:
    """Return the names that a function's code uses, or the attributes of a module or of a class
    and its instances: what it has, declares and assigns."""
    if isinstance(owner, FunctionType):
        return {*inspect.unwrap(owner).__code__.co_names}
    names = {*dir(owner)}
    for kind in getattr(owner, "__mro__", ()):
        names |= vars(kind).get("__annotations__", {}).keys()
        for function in filter(inspect.isfunction, vars(kind).values()):
            code = dis.get_instructions(inspect.unwrap(function))
            names |= {one.argval for one in code if one.opname == "STORE_ATTR"}
    return names
