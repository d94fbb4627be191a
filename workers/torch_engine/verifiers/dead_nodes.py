"""Verification of trees in which no token can be chosen after some nodes.

A request's grammar, least tokens or bias can leave no token after a draft token, a grammar can be
too costly there, and the target's logits can be NaN. Such a node is dead.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace

from workers.torch_engine.interfaces import Proposal, TargetOutput, Verifier
from workers.torch_engine.tree import ROOT, Path


def verify(verifier: Verifier, proposals: Sequence[Proposal], output: TargetOutput) -> list[Path]:
    """Return one path per proposal, by the verifier. output: processed.

    What is below a dead node is left out. The node itself stays: a drawn token has to be accepted
    or rejected as any other, or the response's distribution would change. Where it is accepted it
    ends the step, as the bonus. Plain decoding chooses it too, and finds in its next step whether
    the response can go on.
    """
    if not output.dead:
        return verifier.verify(proposals, output)
    kept = [_kept(proposal, output) for proposal in proposals]
    cut, rows = list[Proposal](), list[int]()
    for proposal, nodes in zip(proposals, kept, strict=True):
        smaller = copy(proposal)
        smaller.keep(nodes)
        smaller.row = len(rows)
        rows += [proposal.row + 1 + node for node in (ROOT, *nodes)]
        cut.append(smaller)
    logits = output.logits[rows]
    logits[[i for i, row in enumerate(rows) if row in output.dead]] = 0.0
    paths = verifier.verify(cut, replace(output, logits=logits, unprocessed=output.raw[rows]))
    return [
        _of_whole(proposal, [nodes[node] for node in path.nodes], path.bonus, output)
        for proposal, nodes, path in zip(proposals, kept, paths, strict=True)
    ]


def _kept(proposal: Proposal, output: TargetOutput) -> list[int]:
    """Return the nodes that are not below a dead one."""
    kept, alive = list[int](), {ROOT}
    for node, parent in enumerate(proposal.parents):
        if parent in alive:
            kept.append(node)
            if proposal.row + 1 + node not in output.dead:
                alive.add(node)
    return kept


def _of_whole(proposal: Proposal, nodes: list[int], bonus: int, output: TargetOutput) -> Path:
    """Return a path of the whole tree. A dead node at its end becomes the bonus."""
    if nodes and proposal.row + 1 + nodes[-1] in output.dead:
        bonus = proposal.tokens[nodes.pop()]
    return Path(tuple(nodes), bonus)
