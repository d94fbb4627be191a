"""vLLM's EAGLE, EAGLE-3, MTP and draft-model proposers, each for the rows that ask for it."""

from collections.abc import Sequence
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

from workers.vllm_engine.drafting.rows import Ints, kept_tokens, rejected_tokens
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


class AutoregressiveDrafter:
    """A drafter with KV of its own, in the slots of the target's.

    Its KV must follow the sequence, so it reads every step of its rows, prompts included; what
    the target rejected is left out.
    """

    def __init__(self, proposer: SpecDecodeBaseProposer) -> None:
        self.proposer = proposer

    @classmethod
    def beside(cls, config: VllmConfig, runner: Any) -> "AutoregressiveDrafter":
        """One more, beside the drafter that vLLM was configured with."""
        kind = (
            DraftModelProposer
            if config.speculative_config.uses_draft_model()
            else SecondEagleProposer
        )
        return cls(kind(config, runner.device, runner))

    def propose(self, step: Step, rows: Sequence[int], tokens: int) -> dict[int, list[int]]:
        """Drafts by row, `tokens` of each; a row past the drafter's context has none."""
        limit = min(self.proposer.max_model_len, self.proposer.draft_model_config.max_model_len)
        rows = [row for row in rows if step.length(row) + tokens <= limit]
        if not rows:
            return {}
        rejected = rejected_tokens(step.drafted(), step.sampled)
        begin = step.attention.query_start_loc_cpu.numpy()
        places, starts = kept_tokens(begin, rows, rejected)
        device = self.proposer.device
        chosen = torch.from_numpy(places).to(device)
        drafts = self.proposer.propose(
            num_speculative_tokens=tokens,
            target_token_ids=step.runner.input_ids.gpu[chosen],
            target_positions=step.runner._get_positions(chosen),
            target_hidden_states=self._hidden_states(step)[chosen],
            next_token_ids=torch.tensor(
                [step.next_token(row) for row in rows], dtype=torch.int32, device=device
            ),
            token_indices_to_sample=None,
            common_attn_metadata=_attention(step, rows, rejected, chosen, starts),
            sampling_metadata=step.sampling_metadata,
        )
        return dict(zip(rows, drafts.tolist(), strict=True))

    def _hidden_states(self, step: Step) -> torch.Tensor:
        if self.proposer.eagle3_use_aux_hidden_state:
            assert step.aux_hidden_states is not None
            return torch.cat(step.aux_hidden_states, dim=-1)
        return step.hidden_states


def _attention(
    step: Step, rows: Sequence[int], rejected: Sequence[int], chosen: torch.Tensor, starts: Ints
) -> CommonAttentionMetadata:
    """The step's attention metadata for these rows and tokens only."""
    whole = step.attention
    device = whole.query_start_loc.device
    index = torch.tensor(rows)
    assert whole.seq_lens_cpu_upper_bound is not None
    lengths = whole.seq_lens_cpu_upper_bound[index] - torch.tensor(
        [rejected[row] for row in rows], dtype=torch.int32
    )
    begin = torch.from_numpy(starts.astype(np.int32))
    return CommonAttentionMetadata(
        query_start_loc=begin.to(device),
        query_start_loc_cpu=begin,
        seq_lens=lengths.clone().to(device),
        seq_lens_cpu_upper_bound=lengths,
        num_reqs=len(rows),
        num_actual_tokens=int(starts[-1]),
        max_query_len=int(np.diff(starts).max()),
        max_seq_len=int(lengths.max()),
        block_table_tensor=whole.block_table_tensor[index.to(device)],
        slot_mapping=whole.slot_mapping[chosen],
        causal=True,
    )
