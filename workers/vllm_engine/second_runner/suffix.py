"""vLLM's suffix proposer, which is made for the first runner, in the second."""

from collections.abc import Sequence

import numpy as np
import torch
from vllm.config import VllmConfig
from vllm.v1.core.sched.output import NewRequestData
from vllm.v1.spec_decode.suffix_decoding import SuffixDecodingProposer
from vllm.v1.worker.gpu.input_batch import InputBatch
from vllm.v1.worker.gpu.states import RequestState

from workers.vllm_engine.second_runner.batch_rows import on_device


class SuffixSpeculator:
    """Draft on the host by looking the last tokens up in the sequence and in past answers.

    The attributes without underscore are those of the first runner's batch that the proposer reads,
    with one row per slot of RequestState.
    """

    def __init__(self, config: VllmConfig, states: RequestState) -> None:
        self._proposer, self._states = SuffixDecodingProposer(config), states
        self._tokens = self._proposer.num_speculative_tokens
        slots = states.max_num_reqs
        self.token_ids_cpu = np.zeros((slots, states.max_model_len), dtype=np.int32)
        self.num_tokens_no_spec = np.zeros(slots, dtype=np.int64)
        self.num_prompt_tokens = np.zeros(slots, dtype=np.int64)
        self.req_ids = [""] * slots
        self.req_id_to_index: dict[str, int] = {}

    def begin(self, slot: int, request: NewRequestData) -> None:
        """Take a slot's new request, or one that goes on after a preemption."""
        known = request.prefill_token_ids
        assert known is not None
        assert request.prompt_len is not None
        self.token_ids_cpu[slot, : len(known)] = known
        self.num_tokens_no_spec[slot] = len(known)
        self.num_prompt_tokens[slot] = request.prompt_len
        self.req_ids[slot] = request.req_id
        self.req_id_to_index[request.req_id] = slot

    def propose(self, batch: InputBatch, num_sampled: torch.Tensor) -> torch.Tensor:
        """Return drafts [rows, tokens]; a shorter draft ends with repetitions of the last token.

        batch: the rows to draft for. num_sampled: their new tokens [rows]. Waits for the target's
        forward, whose tokens the host must know.
        """
        alive = self._states.req_id_to_index
        self.req_id_to_index = {r: s for r, s in self.req_id_to_index.items() if r in alive}
        sampled: list[list[int]] = [[] for _ in self.req_ids]
        for slot, new in zip(batch.idx_mapping_np, self._sampled(batch, num_sampled), strict=True):
            end = self.num_tokens_no_spec[slot] + len(new)
            self.token_ids_cpu[slot, end - len(new) : end] = new
            self.num_tokens_no_spec[slot] = end
            sampled[slot] = new
        found = self._proposer.propose(self._tokens, self, sampled)
        drafts = np.zeros((batch.num_reqs, self._tokens), dtype=np.int64)
        for row, slot in enumerate(batch.idx_mapping_np):
            drafts[row] = self.token_ids_cpu[slot, self.num_tokens_no_spec[slot] - 1]
            drafts[row, : len(found[slot])] = found[slot]
        return on_device(drafts, num_sampled.device, torch.int64)

    def _sampled(self, batch: InputBatch, num_sampled: torch.Tensor) -> Sequence[list[int]]:
        """Return each row's new tokens, none while its prompt is read."""
        slots, states = batch.idx_mapping, self._states
        most = states.num_speculative_steps + 1
        ends = states.total_len.gpu[slots].long()
        last = ends[:, None] + torch.arange(-most, 0, device=slots.device)
        tokens = states.all_token_ids.gpu[slots[:, None], last.clamp(min=0)]
        rows = torch.cat([num_sampled[:, None].long(), tokens.long()], dim=1).tolist()
        return [row[len(row) - row[0] :] for row in rows]
