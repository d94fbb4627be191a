"""vLLM's n-gram, suffix and Medusa proposers, for some rows of a batch."""

from collections.abc import Sequence
from typing import Any

from vllm.config import VllmConfig
from vllm.utils.torch_utils import async_tensor_h2d
from vllm.v1.spec_decode.medusa import MedusaProposer
from vllm.v1.spec_decode.ngram_proposer import NgramProposer
from vllm.v1.spec_decode.suffix_decoding import SuffixDecodingProposer

from workers.vllm_engine.drafting.drafts import Drafts
from workers.vllm_engine.drafting.rows import last_accepted, masked
from workers.vllm_engine.drafting.step import Step


class NgramDrafter:
    """Draft by looking the last tokens up in the sequence."""

    def __init__(self, config: VllmConfig, _runner: Any) -> None:
        self.proposer = NgramProposer(config)

    def propose(self, step: Step, rows: Sequence[int], tokens: int) -> Drafts:
        """Return drafts of at most `tokens` tokens."""
        batch = step.runner.input_batch
        drafts = self.proposer.propose(
            tokens, masked(step.sampled, rows), batch.num_tokens_no_spec, batch.token_ids_cpu
        )
        return Drafts(rows, [drafts[row] for row in rows])


class SuffixDrafter:
    """Draft by looking the last tokens up in the sequence and in the method's past responses."""

    def __init__(self, config: VllmConfig, _runner: Any) -> None:
        self.proposer = SuffixDecodingProposer(config)

    def propose(self, step: Step, rows: Sequence[int], _tokens: int) -> Drafts:
        """Return drafts; the suffix tree decides how long they are. Call it without rows
        too, so that ended sequences are closed."""
        drafts = self.proposer.propose(
            self.proposer.num_speculative_tokens,
            step.runner.input_batch,
            masked(step.sampled, rows),
        )
        return Drafts(rows, [drafts[row] for row in rows])


class MedusaDrafter:
    """Draft with heads that read the target's last hidden state."""

    def __init__(self, config: VllmConfig, runner: Any) -> None:
        self.proposer = MedusaProposer(config, runner.device)

    def propose(self, step: Step, rows: Sequence[int], tokens: int) -> Drafts:
        """Return drafts of at most `tokens` tokens, one from each head."""
        places = last_accepted(step.drafted(), step.sampled)
        chosen = async_tensor_h2d([places[row] for row in rows], self.proposer.device)
        drafts = self.proposer.propose(
            self.proposer.num_speculative_tokens,
            step.sample_hidden_states[chosen],
            step.sampling_metadata,
        )
        return Drafts(rows, drafts[:, :tokens])
