"""Growth of token trees level by level, for drafters with a model."""

from collections.abc import Callable, Sequence

from workers.torch_engine.interfaces import Proposal, Tree
from workers.torch_engine.models.draft_logits import DraftLogits
from workers.torch_engine.models.kv_pool import Lease
from workers.torch_engine.models.layout import Span
from workers.torch_engine.tree import ROOT


def grow(proposals: Sequence[Proposal], read: Callable[[list[Proposal]], DraftLogits]) -> None:
    """Add levels until each proposal's limit, its stop or an empty frontier, then finish the trees.

    read: takes the proposals that still grow, in the order given, and returns the drafter's logits
    at their frontiers as Tree.expand wants them.
    """
    active = [p for p in proposals if p.limit > 0]
    level = 0
    while active:
        expand(active, read(active))
        level += 1
        active = [p for p in active if level < p.limit and p.frontier and p.plan.stop.goes_on(p)]
    for tree, members in _by_tree(proposals):
        tree.finish([proposals[i] for i in members])


def expand(proposals: Sequence[Proposal], logits: DraftLogits) -> None:
    """Add one level to each proposal by its tree. logits: as in Tree.expand."""
    groups = _by_tree(proposals)
    if len(groups) == 1:
        groups[0][0].expand(proposals, logits)
        return
    rows = rows_of(proposals, logits)
    shared = len(logits) == len(proposals)
    for tree, members in groups:
        chosen = members if shared else [row for i in members for row in rows[i]]
        tree.expand([proposals[i] for i in members], logits.rows(chosen))


def rows_of(proposals: Sequence[Proposal], logits: DraftLogits) -> list[Sequence[int]]:
    """Return, per proposal, the row of `logits` (as in Tree.expand) of each frontier node."""
    if len(logits) == len(proposals):
        return [[index] * len(p.frontier) for index, p in enumerate(proposals)]
    rows, start = list[Sequence[int]](), 0
    for proposal in proposals:
        rows.append(range(start, start + len(proposal.frontier)))
        start += len(proposal.frontier)
    return rows


def frontier_span(proposal: Proposal, lease: Lease) -> Span:
    """Return a span that reads the frontier's nodes after the committed tokens and nodes."""
    tokens = [proposal.tokens[node] for node in proposal.frontier]
    read = len(proposal.cached)
    if proposal.is_chain:
        return Span(lease, tokens, read=read)
    order = [*proposal.cached, *proposal.frontier]
    place = {node: index for index, node in enumerate(order)}
    parents = [place.get(proposal.parents[node], ROOT) for node in order]
    return Span(lease, tokens, parents=parents, read=read)


def kept_slots(proposal: Proposal, nodes: Sequence[int]) -> list[int]:
    """Return where a path's nodes lie in the drafter's cache, as offsets for KvPool.commit;
    nodes that it has not read are left out."""
    place = {node: index for index, node in enumerate(proposal.cached)}
    return [place[node] for node in nodes if node in place]


def _by_tree(proposals: Sequence[Proposal]) -> list[tuple[Tree, list[int]]]:
    groups: dict[int, tuple[Tree, list[int]]] = {}
    for index, proposal in enumerate(proposals):
        tree = proposal.plan.tree
        groups.setdefault(id(tree), (tree, []))[1].append(index)
    return list(groups.values())
