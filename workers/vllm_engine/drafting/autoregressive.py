"""vLLM's EAGLE, EAGLE-3, MTP and draft-model proposers, for some rows of a batch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import nn
from vllm.compilation.backends import set_model_tag
from vllm.config import VllmConfig
from vllm.model_executor.model_loader import get_model
from vllm.model_executor.model_loader.utils import get_draft_load_config
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.spec_decode.draft_model import DraftModelProposer
from vllm.v1.spec_decode.eagle import EagleProposer
from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer
from vllm.v1.worker.block_table import BlockTable

from workers.vllm_engine.drafting.rows import kept_tokens, rejected_tokens
from workers.vllm_engine.drafting.step import Step


class SecondEagleProposer(EagleProposer):
    """An EAGLE head in addition to another one, with layer names and a compile tag of its own."""

    def _get_model(self) -> nn.Module:
        config = self._create_draft_vllm_config()
        name = f"specadapt_{self.method}"
        with set_model_tag(name):
            return get_model(
                vllm_config=config,
                model_config=self.speculative_config.draft_model_config,
                load_config=get_draft_load_config(config),
                prefix=name,
            )


@dataclass(frozen=True)
class _Tokens:
    """A drafter's inputs for tokens of a sequence from the `begin`-th on: ids [n], positions [n]
    or [3, n], the target's hidden states [n, width], KV slots [n]."""

    begin: int
    ids: torch.Tensor
    positions: torch.Tensor
    hidden_states: torch.Tensor
    slots: torch.Tensor

    @property
    def end(self) -> int:
        return self.begin + len(self.ids)


class AutoregressiveDrafter:
    """A drafter with KV of its own, in the blocks of its group of vLLM's KV cache: the target's,
    or another one where the target's layers differ (sliding windows).

    Its KV must cover the sequence, prompts included, without rejected tokens. Inputs are kept
    until it drafts for their sequence, and then read at once; or as soon as they fill a KV
    block, which the prefix cache may give to another sequence.
    """

    def __init__(self, proposer: SpecDecodeBaseProposer) -> None:
        self.proposer = proposer
        self._unread: dict[str, list[_Tokens]] = {}
        self._lost: set[str] = set()

    @classmethod
    def in_addition(cls, config: VllmConfig, runner: Any) -> "AutoregressiveDrafter":
        """Return one more drafter in addition to the one that vLLM was configured with."""
        kind = (
            DraftModelProposer
            if config.speculative_config.uses_draft_model()
            else SecondEagleProposer
        )
        return cls(kind(config, runner.device, runner))

    def unread(self, request: str) -> int:
        """Return how many tokens of a request it has not read."""
        kept = self._unread.get(request)
        return kept[-1].end - kept[0].begin if kept else 0

    def lose(self, requests: Iterable[str]) -> None:
        """Stop drafting for requests whose tokens its KV lacks."""
        for request in requests:
            self._unread.pop(request, None)
            self._lost.add(request)

    def take(self, step: Step, rows: Sequence[int]) -> None:
        """Keep the step's tokens of these rows. Call it in each of their steps, before
        `propose`."""
        for request in step.gone(self._unread):
            del self._unread[request]
        self._lost.difference_update(step.gone(self._lost))
        rows = [row for row in self._mine(step, rows) if step.length(row) <= self._longest]
        if not rows:
            return
        for row, new in zip(rows, self._of_step(step, rows), strict=True):
            kept = self._unread.setdefault(step.request(row), [])
            if kept and kept[-1].end != new.begin:
                kept.clear()  # the sequence was preempted, and the target has read it again
            elif kept and new.end - kept[0].begin > self._room:
                self._forward(step, [row], [_joined(kept)], [int(new.ids[0])], 0)
                kept.clear()
            kept.append(new)

    def propose(self, step: Step, rows: Sequence[int], tokens: int) -> dict[int, list[int]]:
        """Return `tokens` draft tokens by row; none for rows beyond the drafter's context and
        lost ones."""
        mine = self._mine(step, rows)
        return self._read(
            step, [row for row in mine if step.length(row) + tokens <= self._longest], tokens
        )

    def full(self, step: Step) -> list[int]:
        """Return the rows with unread tokens that fill a block."""
        block = self.proposer.block_size
        return [
            row
            for row, request in enumerate(step.runner.input_batch.req_ids)
            if (kept := self._unread.get(request))
            and kept[0].begin // block < kept[-1].end // block
        ]

    def keep_up(self, step: Step, rows: Sequence[int]) -> None:
        """Read all tokens of `full` rows. Call it at the end of each step."""
        self._read(step, rows, 0)

    def _mine(self, step: Step, rows: Sequence[int]) -> Sequence[int]:
        if not self._lost:
            return rows
        return [row for row in rows if step.request(row) not in self._lost]

    @property
    def _longest(self) -> int:
        """Return the most tokens of a sequence that it can read."""
        return min(self.proposer.max_model_len, self.proposer.draft_model_config.max_model_len)

    @property
    def _room(self) -> int:
        """Return the most tokens of a sequence that it can read at once; a draft model reads one
        more."""
        return self.proposer.max_num_tokens - self.proposer.net_num_new_slots_per_request

    def _read(self, step: Step, rows: Sequence[int], tokens: int) -> dict[int, list[int]]:
        """Return drafts by row, in as few forwards as the drafter has room for."""
        drafts: dict[int, list[int]] = {}
        group, unread, places = list[int](), list[_Tokens](), 0
        more = self.proposer.net_num_new_slots_per_request
        for row in rows:
            one = _joined(self._unread.pop(step.request(row)))
            if group and places + len(one.ids) + more > self.proposer.max_num_tokens:
                drafts |= self._drafts(step, group, unread, tokens)
                group, unread, places = [], [], 0
            group.append(row)
            unread.append(one)
            places += len(one.ids) + more
        return drafts | self._drafts(step, group, unread, tokens)

    def _drafts(
        self, step: Step, rows: list[int], unread: list[_Tokens], tokens: int
    ) -> dict[int, list[int]]:
        if not rows:
            return {}
        following = [step.next_token(row) for row in rows]
        drafts = self._forward(step, rows, unread, following, tokens)
        return dict(zip(rows, drafts.tolist(), strict=True))

    def _forward(
        self,
        step: Step,
        rows: Sequence[int],
        unread: Sequence[_Tokens],
        following: Sequence[int],
        tokens: int,
    ) -> torch.Tensor:
        """Return drafts [rows, tokens]. following: each row's token after the unread ones."""
        whole = _joined(unread)
        return self.proposer.propose(
            num_speculative_tokens=tokens,
            target_token_ids=whole.ids,
            target_positions=whole.positions,
            target_hidden_states=whole.hidden_states,
            next_token_ids=torch.tensor(following, dtype=torch.int32, device=self.proposer.device),
            token_indices_to_sample=None,
            common_attn_metadata=_attention(step, rows, unread, whole.slots, self._blocks(step)),
            sampling_metadata=step.sampling_metadata,
        )

    def _of_step(self, step: Step, rows: Sequence[int]) -> list[_Tokens]:
        """Return each row's tokens of the step, without rejected ones."""
        rejected = rejected_tokens(step.drafted(), step.sampled)
        begin = step.attention.query_start_loc_cpu.numpy()
        places = kept_tokens(begin, rows, rejected)
        chosen = torch.from_numpy(np.concatenate(places)).to(self.proposer.device)
        sizes = [len(place) for place in places]
        lengths = step.attention.seq_lens_cpu_upper_bound
        assert lengths is not None
        begins = [
            int(lengths[row]) - rejected[row] - size for row, size in zip(rows, sizes, strict=True)
        ]
        return [
            _Tokens(*of_row)
            for of_row in zip(
                begins,
                _apart(step.runner.input_ids.gpu[chosen], sizes),
                _apart(step.runner._get_positions(chosen), sizes, dim=-1),
                _apart(self._hidden_states(step, chosen), sizes),
                _apart(self._blocks(step).slot_mapping.gpu[chosen], sizes),
                strict=True,
            )
        ]

    def _blocks(self, step: Step) -> BlockTable:
        """Return the blocks of its group. The step's own metadata are of the host's group, or of
        the first one if that is a draft model."""
        return step.runner.input_batch.block_table[self.proposer.kv_cache_gid]

    def _hidden_states(self, step: Step, chosen: torch.Tensor) -> torch.Tensor:
        if self.proposer.eagle3_use_aux_hidden_state:
            assert step.aux_hidden_states is not None
            return torch.cat([states[chosen] for states in step.aux_hidden_states], dim=-1)
        return step.hidden_states[chosen]


def _apart(together: torch.Tensor, sizes: list[int], dim: int = 0) -> list[torch.Tensor]:
    """Split a tensor into copies: a view would keep the whole step's tensor alive."""
    parts = torch.split(together, sizes, dim=dim)
    return [together] if len(parts) == 1 else [part.clone() for part in parts]


def _joined(parts: Sequence[_Tokens]) -> _Tokens:
    """Join tokens as if they belonged to one sequence."""
    if len(parts) == 1:
        return parts[0]
    return _Tokens(
        parts[0].begin,
        torch.cat([part.ids for part in parts]),
        torch.cat([part.positions for part in parts], dim=-1),
        torch.cat([part.hidden_states for part in parts]),
        torch.cat([part.slots for part in parts]),
    )


def _attention(
    step: Step,
    rows: Sequence[int],
    unread: Sequence[_Tokens],
    slots: torch.Tensor,
    blocks: BlockTable,
) -> CommonAttentionMetadata:
    """Return the attention metadata of a step with these tokens of these rows. slots, blocks: of
    the drafter's group."""
    device = step.attention.query_start_loc.device
    sizes = [len(tokens.ids) for tokens in unread]
    lengths = torch.tensor([tokens.end for tokens in unread], dtype=torch.int32)
    begin = torch.tensor([0, *accumulate(sizes)], dtype=torch.int32)
    return CommonAttentionMetadata(
        query_start_loc=begin.to(device),
        query_start_loc_cpu=begin,
        seq_lens=lengths.clone().to(device),
        seq_lens_cpu_upper_bound=lengths,
        num_reqs=len(rows),
        num_actual_tokens=sum(sizes),
        max_query_len=max(sizes),
        max_seq_len=int(lengths.max()),
        block_table_tensor=blocks.block_table.gpu[torch.tensor(rows).to(device)],
        slot_mapping=slots,
        causal=True,
    )
