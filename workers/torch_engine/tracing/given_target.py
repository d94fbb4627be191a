"""A target with forwards computed in advance, over whole answers."""

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from workers.torch_engine.models.layout import Span
from workers.torch_engine.parts import Proposal
from workers.torch_engine.target import Target
from workers.torch_engine.target_output import TargetOutput
from workers.torch_engine.tracing.given_text import GivenText, probabilities
from workers.torch_engine.tree import Path


class GivenTarget(Target):
    """Return the target's precomputed results for the tokens that a step reads; it reads no
    drafts.

    texts: by sequence id.
    """

    def __init__(self, target: Target, texts: Mapping[int, GivenText]) -> None:
        super().__init__(target.model, target.pool)
        self._texts = texts

    def read(self, text: GivenText, captures: Collection[int]) -> None:
        """Compute a text's states and probabilities: one forward over prompt and answer."""
        lease = self.pool.acquire()
        tokens = [*text.prompt, *text.answer[:-1]]
        span = Span(lease, tokens, logits_from=len(text.prompt) - 1)
        logits, text.states = self.model.forward(
            self.model.lay_out([span], self.pool), self.pool, captures
        )
        self.pool.release(lease)
        followed = torch.tensor(text.answer, device=logits.device)
        text.p = probabilities(logits, followed, text.sampling)

    def forward(
        self, proposals: Sequence[Proposal], captures: Collection[int] = ()
    ) -> TargetOutput:
        """Return the states of pending tokens, and no logits."""
        output = TargetOutput(torch.empty(len(proposals), 0), {}, starts={}, pending={})
        parts: dict[int, list[Tensor]] = {capture: [] for capture in captures}
        start = 0
        for proposal in proposals:
            sequence = proposal.sequence
            length, end = sequence.lease.length, len(sequence.tokens)
            output.starts[sequence.id], output.pending[sequence.id] = start, end - length
            start += end - length
            for capture, rows in parts.items():
                rows.append(self._texts[sequence.id].states[capture][length:end])
        output.hidden = {capture: torch.cat(rows) for capture, rows in parts.items()}
        return output

    def commit(self, proposal: Proposal, path: Path, output: TargetOutput) -> None:  # noqa: ARG002
        """Count the pending tokens as read."""
        proposal.sequence.lease.length += output.pending[proposal.sequence.id]
