"""Drafts of the text that a request's grammar leaves no choice about, for every method."""

from collections.abc import Sequence

from workers.drafting.controller import GRAMMAR
from workers.torch_engine.interfaces import Proposal

MOST = 16
"""Forced tokens of one step."""


def forced(proposal: Proposal) -> list[int]:
    """Return the next tokens that the grammar of a proposal's request forces, up to MOST."""
    sequence = proposal.sequence
    if sequence.processor is None or not sequence.output_tokens:
        return []
    return sequence.processor.forced(sequence.tokens, min(MOST, sequence.draftable))


def force(proposal: Proposal, tokens: Sequence[int]) -> None:
    """Begin a proposal's tree with forced tokens, and keep the nodes of its draft that continue
    them.

    Forced tokens count as chosen. If those that the drafter drew kept their q, its draws would
    decide whether a token is verified as drawn or as chosen, and the response's distribution would
    change.
    """
    if not tokens:
        return
    path = proposal.follow(tokens)
    below = {path[-1]} if len(path) == len(tokens) else set[int]()
    for child in range(len(proposal)):
        if proposal.parents[child] in below:
            below.add(child)
    proposal.keep(sorted({*path} | below))
    for i in range(len(path)):
        proposal.q[i], proposal.logits[i] = None, None
    for token in tokens[len(path) :]:
        proposal.add(token, len(proposal) - 1)
    if len(proposal) == len(tokens):
        proposal.drafter = GRAMMAR
