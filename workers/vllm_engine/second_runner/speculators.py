"""Several of vLLM's speculators in its second model runner, which is made for one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from vllm.config.compilation import CUDAGraphMode
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.worker.gpu.attn_utils import build_slot_mappings_by_layer
from vllm.v1.worker.gpu.input_batch import InputBatch
from vllm.v1.worker.gpu.model_runner import GPUModelRunner
from vllm.v1.worker.gpu.spec_decode.eagle.speculator import EagleSpeculator
from vllm.v1.worker.gpu.spec_decode.ngram.speculator import NgramGPUSpeculator
from vllm.v1.worker.gpu.spec_decode.speculator import BaseSpeculator

from workers.vllm_engine.drafting.own_config import own_config
from workers.vllm_engine.drafting.portfolio import Portfolio, method_named
from workers.vllm_engine.second_runner.batch_rows import on_device, select_rows
from workers.vllm_engine.second_runner.requirements import refuse_misfit
from workers.vllm_engine.second_runner.suffix import SuffixSpeculator


class BatchStep(NamedTuple):
    """A step as speculators see it: the positional arguments of BaseSpeculator.propose.

    Hidden states are those of each token of the batch, num_sampled and num_rejected of each row;
    what follows has an entry per slot of RequestState.
    """

    batch: InputBatch
    attn_metadata: dict[str, Any] | None
    slot_mappings: dict[str, torch.Tensor] | None
    last_hidden_states: torch.Tensor
    aux_hidden_states: list[torch.Tensor] | None
    num_sampled: torch.Tensor
    num_rejected: torch.Tensor
    last_sampled: torch.Tensor
    next_prefill_tokens: torch.Tensor
    temperature: torch.Tensor
    seeds: torch.Tensor

    def of(self, rows: Sequence[int]) -> BatchStep:
        """Return the step of some rows, without attention metadata."""
        batch, places = select_rows(self.batch, rows)
        index = on_device(rows, self.num_sampled.device, torch.int64)
        aux = self.aux_hidden_states
        return self._replace(
            batch=batch,
            attn_metadata=None,
            slot_mappings=None,
            last_hidden_states=self.last_hidden_states[places],
            aux_hidden_states=None if aux is None else [states[places] for states in aux],
            num_sampled=self.num_sampled[index],
            num_rejected=self.num_rejected[index],
        )


class SharedSpeculator(BaseSpeculator):
    """Draft for each row of a batch by the method that its request names.

    A mix-in before the class of vLLM's speculator for the portfolio's host: the drafter with KV,
    else n-grams. The host drafts by its own class, and so keeps its CUDA graphs where all rows are
    its own. Drafters alongside read tokens only.
    """

    def host(self, runner: GPUModelRunner, portfolio: Portfolio) -> None:
        """Take the place of a runner's speculator. Call it before the models are loaded."""
        self._runner, self._portfolio = runner, portfolio
        self._name = portfolio.host or "ngram"
        self._beside: dict[str, NgramGPUSpeculator | SuffixSpeculator] = {}
        states = runner.req_states
        for name in portfolio.drafters.keys() - {self._name}:
            config = own_config(runner.vllm_config, portfolio.drafters[name])
            if name == "suffix":
                self._beside[name] = SuffixSpeculator(config, states)
            else:
                self._beside[name] = NgramGPUSpeculator(config, runner.device, states)
        self._methods: list[str | None] = [None] * states.max_num_reqs
        self._drafts = torch.zeros_like(states.draft_tokens)
        self._add_requests = runner.add_requests
        runner.add_requests = self.add_requests
        runner.speculator = self

    def add_requests(self, scheduled: SchedulerOutput) -> None:
        """Note new requests' methods. Replaces GPUModelRunner.add_requests."""
        self._add_requests(scheduled)
        for request in scheduled.scheduled_new_reqs:
            slot = self._runner.req_states.req_id_to_index[request.req_id]
            params = request.sampling_params
            self._methods[slot] = None if params is None else method_named(params.extra_args)
            for drafter in self._beside.values():
                if isinstance(drafter, SuffixSpeculator):
                    drafter.begin(slot, request)

    def propose(self, *given: Any, dummy_run: bool = False, **options: Any) -> torch.Tensor:
        """Return drafts [rows, tokens] as BaseSpeculator.propose does.

        What lies beyond a row's number of draft tokens is undefined; SharedScheduler does not
        schedule it. A dummy run is the host's.
        """
        if dummy_run:
            return super().propose(*given, dummy_run=True, **options)
        step = BatchStep(*given)
        names = [self._methods[slot] for slot in step.batch.idx_mapping_np]
        rows_of, every = self._portfolio.rows(names), step.batch.num_reqs
        drafts = self._drafts[:every]
        for name, rows in rows_of.items():
            few = step if len(rows) == every else step.of(rows)
            if name == self._name:
                tokens = max(self._tokens(names[row], every) for row in rows)
                found = self._by_host(few, options | {"num_speculative_tokens": tokens})
            else:
                found = self._by_other(name, few)
            if len(rows) == every and found.shape == drafts.shape:
                return found
            index = on_device(rows, drafts.device, torch.int64)
            drafts[index, : found.shape[1]] = found
        return drafts

    def _by_host(self, step: BatchStep, options: dict[str, Any]) -> torch.Tensor:
        """Return the host's drafts. Some rows' attention metadata is built anew, in the buffers of
        the step, which the target has read; they run without CUDA graphs."""
        if step.slot_mappings is None and self._portfolio.host is not None:
            tables, slots = self._runner.prepare_attn(step.batch)
            step = step._replace(
                attn_metadata=self.model_state.prepare_attn(
                    *(step.batch, CUDAGraphMode.NONE, tables, slots),
                    *(self.attn_groups, self.kv_cache_config),
                ),
                slot_mappings=build_slot_mappings_by_layer(slots, self.kv_cache_config),
            )
            # The multimodal inputs are the whole batch's; `is_profile` means eager to vLLM.
            options |= {"mm_inputs": None, "is_profile": True}
        return super().propose(*step, **options)

    def _by_other(self, name: str, step: BatchStep) -> torch.Tensor:
        drafter = self._beside[name]
        if isinstance(drafter, SuffixSpeculator):
            return drafter.propose(step.batch, step.num_sampled)
        return drafter.propose(*step)

    def _tokens(self, method: str | None, batch: int) -> int:
        assert method is not None
        return self._portfolio.methods[method].schedule.gamma(batch)


class SharedEagleSpeculator(SharedSpeculator, EagleSpeculator):
    """Host EAGLE or EAGLE-3, and drafters that read tokens."""


class SharedNgramSpeculator(SharedSpeculator, NgramGPUSpeculator):
    """Host n-grams, and suffixes."""


def host_second_runner(runner: GPUModelRunner, portfolio: Portfolio) -> None:
    """Make a second model runner draft by the method that each request names. Call it before the
    models are loaded. Raises RuntimeError for a vLLM or a configuration that it does not fit."""
    refuse_misfit(runner)
    if not portfolio.methods:
        return
    speculator: SharedSpeculator
    if portfolio.host is None:
        speculator = SharedNgramSpeculator(runner.vllm_config, runner.device, runner.req_states)
    else:
        speculator = SharedEagleSpeculator(runner.vllm_config, runner.device)
    speculator.host(runner, portfolio)
