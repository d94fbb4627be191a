"""vLLM's EAGLE, EAGLE-3, MTP and draft-model proposers, for some rows of a batch."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from vllm.compilation.backends import set_model_tag
from vllm.config import VllmConfig
from vllm.model_executor.model_loader import get_model
from vllm.model_executor.model_loader.utils import get_draft_load_config
from vllm.utils.torch_utils import async_tensor_h2d
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.spec_decode.draft_model import DraftModelProposer
from vllm.v1.spec_decode.eagle import EagleProposer
from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer
from vllm.v1.worker.block_table import BlockTable

from workers.vllm_engine.drafting.drafts import Drafts
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


Span = tuple[int, range]
"""A row and positions of its sequence."""


@dataclass
class _Unread:
    """The tokens of a sequence, from `begin` to `end`, that a drafter has not read. place: the
    block of its buffer with the target's hidden states of those from earlier steps."""

    place: int
    begin: int = 0
    end: int = 0


@dataclass(frozen=True)
class _Tokens:
    """Tokens that a drafter reads or keeps, of one row after the other.

    begins [rows + 1]: where each row's are among them. rows, positions [n]: of each token. sources
    [n]: where the step has its hidden states, negative for tokens of earlier steps. places [n]:
    where the drafter's buffer has them.
    """

    begins: NDArray[np.int64]
    rows: NDArray[np.int64]
    positions: NDArray[np.int64]
    sources: NDArray[np.int64]
    places: NDArray[np.int64]


class AutoregressiveDrafter:
    """A drafter with KV of its own, in the blocks of its group of vLLM's KV cache: the target's,
    or another one where the target's layers differ (sliding windows).

    Its KV must cover the sequence, prompts included, without rejected tokens. Tokens wait until it
    drafts for their sequence, and are then read at once; or as soon as they fill a KV block, which
    the prefix cache may give to another sequence. Of those that wait only the target's hidden
    states are kept, in a buffer with a block for each sequence.
    """

    def __init__(self, proposer: SpecDecodeBaseProposer) -> None:
        self.proposer = proposer
        self._unread: dict[str, _Unread] = {}
        self._lost: set[str] = set()
        self._free = list(range(proposer.max_batch_size))
        self._states: torch.Tensor | None = None
        self._kept_block = 0
        self._to_device = partial(async_tensor_h2d, device=proposer.device)

    @classmethod
    def in_addition(cls, config: VllmConfig, runner: Any) -> "AutoregressiveDrafter":
        """Return one more drafter in addition to the one that vLLM was configured with."""
        kind = (
            DraftModelProposer
            if config.speculative_config.uses_draft_model()
            else SecondEagleProposer
        )
        return cls(kind(config, runner.device, runner))

    def reserve(self, width: int) -> None:
        """Allocate the buffer. Call it once, before vLLM measures the memory that KV may have.
        width: numbers of a token's hidden states."""
        self._kept_block = self.proposer.vllm_config.cache_config.block_size
        if self.proposer.pass_hidden_states_to_model:
            self._states = torch.empty(
                (self.proposer.max_batch_size * self._kept_block, width),
                dtype=self.proposer.dtype,
                device=self.proposer.device,
            )

    def rehearse(self, num_tokens: int, **_options: Any) -> None:
        """Allocate for a moment what a step with so many tokens gathers, so that vLLM's profile
        run sees it. Takes the arguments of vLLM's `dummy_run`."""
        if self._states is not None:
            self._states.new_empty(2 * num_tokens, self._states.shape[1])

    def unread(self, request: str) -> int:
        """Return how many tokens of a request it has not read."""
        one = self._unread.get(request)
        return one.end - one.begin if one else 0

    def lose(self, requests: Iterable[str]) -> None:
        """Stop drafting for requests whose tokens its KV lacks."""
        for request in requests:
            self._forget(request)
            self._lost.add(request)

    def take(self, step: Step, rows: Sequence[int]) -> None:
        """Note the step's tokens of these rows. Call it in each of their steps, before
        `propose`."""
        for request in step.gone(self._unread):
            self._forget(request)
        self._lost.difference_update(step.gone(self._lost))
        for row in rows:
            request, read = step.request(row), step.read(row)
            if request in self._lost:
                continue
            if step.length(row) > self._longest or not (request in self._unread or self._free):
                self.lose([request])
                continue
            if request not in self._unread:
                self._unread[request] = _Unread(self._free.pop())
            one = self._unread[request]
            if one.end != read.start:  # it is new, or was preempted and is read again
                one.begin = read.start
            one.end = read.stop

    def propose(self, step: Step, rows: Sequence[int], tokens: int) -> Drafts:
        """Return drafts of `tokens` tokens; none for rows beyond the drafter's context and lost
        ones."""
        mine = [row for row in rows if step.request(row) in self._unread]
        mine = [row for row in mine if step.length(row) + tokens <= self._longest]
        drafts = self._read(step, mine, tokens)
        return Drafts(mine, torch.cat(drafts) if drafts else [])

    def behind(self, step: Step, rows: Sequence[int]) -> list[int]:
        """Return the rows with unread tokens."""
        return [row for row in rows if self.unread(step.request(row))]

    def keep_up(self, step: Step, rows: Sequence[int]) -> None:
        """Read the tokens of rows that fill a block, and keep the other rows' hidden states. Call
        it at the end of each step with the rows that are `behind`."""
        block = self._block
        unread = {row: self._unread[step.request(row)] for row in rows}
        full = [row for row, one in unread.items() if one.begin // block < one.end // block]
        self._read(step, full, 0)
        spans = [
            (row, range(max(one.begin, step.read(row).start), one.end))
            for row, one in unread.items()
            if one.begin < one.end
        ]
        if spans and self._states is not None:
            kept = self._tokens(step, spans)
            self._states[self._to_device(kept.places)] = self._of_step(step, kept.sources)

    def _forget(self, request: str) -> None:
        one = self._unread.pop(request, None)
        if one is not None:
            self._free.append(one.place)

    @property
    def _longest(self) -> int:
        """Return the most tokens of a sequence that it can read."""
        return min(self.proposer.max_model_len, self.proposer.draft_model_config.max_model_len)

    @property
    def _room(self) -> int:
        """Return the most tokens of a sequence that it can read at once; a draft model reads one
        more."""
        return self.proposer.max_num_tokens - self.proposer.net_num_new_slots_per_request

    @cached_property
    def _block(self) -> int:
        """Return the tokens of a KV block, or of a part of it that the buffer holds: vLLM may
        enlarge blocks after the buffer's allocation."""
        return math.gcd(self._kept_block, self.proposer.block_size)

    def _read(self, step: Step, rows: Sequence[int], tokens: int) -> list[torch.Tensor]:
        """Read all tokens of rows, in as few forwards as the drafter has room for. Return drafts
        [rows, tokens] of each."""
        drafts: list[torch.Tensor] = []
        spans, places = list[Span](), 0
        more = self.proposer.net_num_new_slots_per_request
        for row in rows:
            one = self._unread[step.request(row)]
            while one.end - one.begin > self._room:
                piece = range(one.begin, one.begin + self._room)
                self._forward(step, [(row, piece)], 0)
                one.begin = piece.stop
            span = range(one.begin, one.end)
            if spans and places + len(span) + more > self.proposer.max_num_tokens:
                drafts.append(self._forward(step, spans, tokens))
                spans, places = [], 0
            spans.append((row, span))
            places += len(span) + more
        if spans:
            drafts.append(self._forward(step, spans, tokens))
        for row in rows:
            one = self._unread[step.request(row)]
            one.begin = one.end
        return drafts

    def _forward(self, step: Step, spans: Sequence[Span], tokens: int) -> torch.Tensor:
        """Return drafts [rows, tokens] after these tokens of each row."""
        read, text = self._tokens(step, spans), step.runner.input_batch.token_ids_cpu
        rows = np.array([row for row, _ in spans])
        ends = np.array([span.stop for _, span in spans], dtype=np.int32)
        begins = read.begins.astype(np.int32)
        # The step's own metadata are of the host's group, or of the first one if that is a draft
        # model.
        blocks: BlockTable = step.runner.input_batch.block_table[self.proposer.kv_cache_gid]
        size = blocks.block_size
        numbers = blocks.block_table.np[read.rows, read.positions // size].astype(np.int64)
        positions = self._to_device(read.positions)
        if self.proposer.vllm_config.model_config.uses_mrope:
            positions = positions.expand(3, -1)  # of text, in all dimensions
        return self.proposer.propose(
            num_speculative_tokens=tokens,
            target_token_ids=self._to_device(text[read.rows, read.positions]),
            target_positions=positions,
            target_hidden_states=self._hidden_states(step, read),
            next_token_ids=self._to_device(text[rows, ends]),
            token_indices_to_sample=None,
            common_attn_metadata=CommonAttentionMetadata(
                query_start_loc=self._to_device(begins),
                query_start_loc_cpu=torch.from_numpy(begins),
                seq_lens=self._to_device(ends.copy()),  # vLLM changes both in place
                seq_lens_cpu_upper_bound=torch.from_numpy(ends),
                num_reqs=len(rows),
                num_actual_tokens=len(read.positions),
                max_query_len=int(np.diff(begins).max()),
                max_seq_len=int(ends.max()),
                block_table_tensor=blocks.block_table.gpu[self._to_device(rows)],
                slot_mapping=self._to_device(numbers * size + read.positions % size),
                causal=True,
            ),
            sampling_metadata=step.sampling_metadata,
        )

    def _tokens(self, step: Step, spans: Sequence[Span]) -> _Tokens:
        """Return where the tokens of spans are."""
        begins = np.cumsum([0, *(len(span) for _, span in spans)])
        each = [
            (row, span.start - begin, step.read(row).start, self._unread[step.request(row)].place)
            for (row, span), begin in zip(spans, begins[:-1], strict=True)
        ]
        rows, shifts, first, place = np.repeat(each, np.diff(begins), axis=0).T
        positions = np.arange(begins[-1]) + shifts
        of_step = step.runner.query_start_loc.np[rows] + positions - first
        sources = np.where(positions < first, -1, of_step)
        places = place * self._kept_block + positions % self._block
        return _Tokens(begins, rows, positions, sources, places)

    def _hidden_states(self, step: Step, read: _Tokens) -> torch.Tensor:
        """Return the target's hidden states of tokens [n, width], if the drafter reads them."""
        if self._states is None:
            return step.hidden_states
        new = read.sources >= 0
        of_step = self._of_step(step, read.sources[new])
        if new.all():
            return of_step
        states = of_step.new_empty(len(new), of_step.shape[1])
        states[self._to_device(np.flatnonzero(new))] = of_step
        kept = self._to_device(read.places[~new])
        states[self._to_device(np.flatnonzero(~new))] = self._states[kept]
        return states

    def _of_step(self, step: Step, sources: NDArray[np.int64]) -> torch.Tensor:
        chosen = self._to_device(sources)
        if not self.proposer.eagle3_use_aux_hidden_state:
            return step.hidden_states[chosen]
        assert step.aux_hidden_states is not None
        return torch.cat([states[chosen] for states in step.aux_hidden_states], dim=-1)
