"""vLLM's EAGLE, EAGLE-3, MTP and draft-model proposers, each for the rows that ask for it."""

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

from workers.vllm_engine.drafting.rows import kept_tokens, rejected_tokens
from workers.vllm_engine.drafting.step import Step


class SecondEagleProposer(EagleProposer):
    """An EAGLE head beside another: vLLM gives both the same layer names and compile tag."""

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
    """Tokens of a sequence from its `begin`-th on, as a drafter reads them: ids [n], positions [n]
    or [3, n], the target's hidden states [n, width], slots of the KV [n]."""

    begin: int
    ids: torch.Tensor
    positions: torch.Tensor
    hidden_states: torch.Tensor
    slots: torch.Tensor

    @property
    def end(self) -> int:
        return self.begin + len(self.ids)


class AutoregressiveDrafter:
    """A drafter with KV of its own, in the slots of the target's.

    Its KV must follow the sequence, prompts included, without what the target rejected. What it
    needs of the tokens is kept until it drafts for their sequence, and read then, all at once; or
    as soon as they fill a block of the KV, which the prefix cache may give to another sequence.
    """

    def __init__(self, proposer: SpecDecodeBaseProposer) -> None:
        self.proposer = proposer
        self._unread: dict[str, list[_Tokens]] = {}
        self._lost: set[str] = set()

    @classmethod
    def beside(cls, config: VllmConfig, runner: Any) -> "AutoregressiveDrafter":
        """One more, beside the drafter that vLLM was configured with."""
        kind = (
            DraftModelProposer
            if config.speculative_config.uses_draft_model()
            else SecondEagleProposer
        )
        return cls(kind(config, runner.device, runner))

    def unread(self, request: str) -> int:
        """Tokens of a request that are kept for it."""
        kept = self._unread.get(request)
        return kept[-1].end - kept[0].begin if kept else 0

    def lose(self, requests: Iterable[str]) -> None:
        """Leave requests alone from here on: its KV lacks tokens of them."""
        for request in requests:
            self._unread.pop(request, None)
            self._lost.add(request)

    def take(self, step: Step, rows: Sequence[int]) -> None:
        """Keep the step's tokens of these rows; to be called in each of their steps, before
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
                kept.clear()  # it was preempted, and the target has read it again
            elif kept and new.end - kept[0].begin > self._room:
                self._forward(step, [row], [_joined(kept)], [int(new.ids[0])], 0)
                kept.clear()
            kept.append(new)

    def propose(self, step: Step, rows: Sequence[int], tokens: int) -> dict[int, list[int]]:
        """Drafts by row, `tokens` of each; a row past the drafter's context has none, and no one
        that is lost."""
        mine = self._mine(step, rows)
        return self._read(
            step, [row for row in mine if step.length(row) + tokens <= self._longest], tokens
        )

    def keep_up(self, step: Step) -> None:
        """Read what fills a block; to be called at the end of each step."""
        block = self.proposer.block_size
        full = [
            row
            for row, request in enumerate(step.runner.input_batch.req_ids)
            if (kept := self._unread.get(request))
            and kept[0].begin // block < kept[-1].end // block
        ]
        self._read(step, full, 0)

    def _mine(self, step: Step, rows: Sequence[int]) -> Sequence[int]:
        if not self._lost:
            return rows
        return [row for row in rows if step.request(row) not in self._lost]

    @property
    def _longest(self) -> int:
        """Tokens of the longest sequence that it can read."""
        return min(self.proposer.max_model_len, self.proposer.draft_model_config.max_model_len)

    @property
    def _room(self) -> int:
        """Tokens of one sequence that it can read at once; a draft model reads one more."""
        return self.proposer.max_num_tokens - self.proposer.net_num_new_slots_per_request

    def _read(self, step: Step, rows: Sequence[int], tokens: int) -> dict[int, list[int]]:
        """Drafts by row, in as few forwards as the drafter has room for."""
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
        """Drafts [rows, tokens]; following: of each row the token after the unread ones."""
        whole = _joined(unread)
        return self.proposer.propose(
            num_speculative_tokens=tokens,
            target_token_ids=whole.ids,
            target_positions=whole.positions,
            target_hidden_states=whole.hidden_states,
            next_token_ids=torch.tensor(following, dtype=torch.int32, device=self.proposer.device),
            token_indices_to_sample=None,
            common_attn_metadata=_attention(step, rows, unread, whole.slots),
            sampling_metadata=step.sampling_metadata,
        )

    def _of_step(self, step: Step, rows: Sequence[int]) -> list[_Tokens]:
        """The step's tokens of each row, but for those that the target rejected."""
        rejected = rejected_tokens(step.drafted(), step.sampled)
        begin = step.attention.query_start_loc_cpu.numpy()
        places, starts = kept_tokens(begin, rows, rejected)
        chosen = torch.from_numpy(places).to(self.proposer.device)
        sizes = np.diff(starts).tolist()
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
                _apart(step.attention.slot_mapping[chosen], sizes),
                strict=True,
            )
        ]

    def _hidden_states(self, step: Step, chosen: torch.Tensor) -> torch.Tensor:
        if self.proposer.eagle3_use_aux_hidden_state:
            assert step.aux_hidden_states is not None
            return torch.cat([states[chosen] for states in step.aux_hidden_states], dim=-1)
        return step.hidden_states[chosen]


def _apart(together: torch.Tensor, sizes: list[int], dim: int = 0) -> list[torch.Tensor]:
    """Split a tensor into copies: a view of one token would keep what the step read of all."""
    parts = torch.split(together, sizes, dim=dim)
    return [together] if len(parts) == 1 else [part.clone() for part in parts]


def _joined(parts: Sequence[_Tokens]) -> _Tokens:
    """One after the other, as if they were of one sequence."""
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
    step: Step, rows: Sequence[int], unread: Sequence[_Tokens], slots: torch.Tensor
) -> CommonAttentionMetadata:
    """As if the step had been these tokens of these rows."""
    whole = step.attention
    device = whole.query_start_loc.device
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
        block_table_tensor=whole.block_table_tensor[torch.tensor(rows).to(device)],
        slot_mapping=slots,
        causal=True,
    )
