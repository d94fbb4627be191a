"""Log probabilities of emitted tokens, for requests that ask for them."""

from schemas import TokenLogprobs
from workers.torch_engine.parts import Proposal
from workers.torch_engine.target_output import TargetOutput
from workers.torch_engine.tree import Path


def token_logprobs(proposal: Proposal, path: Path, output: TargetOutput) -> list[TokenLogprobs]:
    """Return the log probabilities of a path's tokens and the bonus, from the target's raw
    logits; empty where the request wants none."""
    wanted = proposal.sequence.sampling.logprobs
    if wanted is None:
        return []
    tokens = [*(proposal.tokens[node] for node in path.nodes), path.bonus]
    rows = [proposal.row, *(proposal.row + 1 + node for node in path.nodes)]
    logprobs = output.raw[rows].log_softmax(-1)
    chosen = logprobs[range(len(tokens)), tokens].tolist()
    best = logprobs.topk(min(wanted, logprobs.shape[-1]), dim=-1)
    tops = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [
        TokenLogprobs(chosen=value, top=tuple(zip(ids, values, strict=True)))
        for value, (ids, values) in zip(chosen, tops, strict=True)
    ]
