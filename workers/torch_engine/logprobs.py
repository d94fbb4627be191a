"""Log probabilities of emitted tokens and of prompts, for requests that ask for them."""

from collections.abc import Sequence

from schemas import TokenLogprobs
from workers.torch_engine.parts import Proposal
from workers.torch_engine.target_output import TargetOutput
from workers.torch_engine.tree import Path

ROWS_AT_ONCE = 64
"""Rows of a prompt whose log probabilities are computed together, each as long as the
vocabulary."""


def token_logprobs(proposal: Proposal, path: Path, output: TargetOutput) -> list[TokenLogprobs]:
    """Return the log probabilities of a path's tokens and the bonus, from the target's raw
    logits; empty where the request wants none."""
    wanted = proposal.sequence.sampling.logprobs
    if wanted is None:
        return []
    tokens = [*(proposal.tokens[node] for node in path.nodes), path.bonus]
    rows = [proposal.row, *(proposal.row + 1 + node for node in path.nodes)]
    return _of(output, rows, tokens, wanted)


def prompt_logprobs(proposal: Proposal, output: TargetOutput) -> list[TokenLogprobs]:
    """Return the log probabilities of the prompt tokens that follow those of this forward, as far
    as they belong to the prompt; empty where the request wants none."""
    sequence = proposal.sequence
    wanted = sequence.sampling.prompt_logprobs
    if wanted is None or not sequence.reads_prompt:
        return []
    begin, pending = sequence.lease.length, output.pending[sequence.id]
    tokens = sequence.tokens[begin + 1 : begin + pending + 1]
    first = proposal.row - pending + 1
    found = list[TokenLogprobs]()
    for at in range(0, len(tokens), ROWS_AT_ONCE):
        some = tokens[at : at + ROWS_AT_ONCE]
        found += _of(output, range(first + at, first + at + len(some)), some, wanted)
    return found


def _of(
    output: TargetOutput, rows: Sequence[int], tokens: Sequence[int], wanted: int
) -> list[TokenLogprobs]:
    """Return the log probabilities of tokens, each by its row of raw logits."""
    logprobs = output.raw[list(rows)].log_softmax(-1)
    chosen = logprobs[range(len(tokens)), list(tokens)].tolist()
    best = logprobs.topk(min(wanted, logprobs.shape[-1]), dim=-1)
    tops = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [
        TokenLogprobs(chosen=value, top=tuple(zip(ids, values, strict=True)))
        for value, (ids, values) in zip(chosen, tops, strict=True)
    ]
