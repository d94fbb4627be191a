"""Records what a drafter would say at every position of the target's own answers."""

from collections.abc import Sequence

from ops.measure.decoding import EncodedPrompt
from ops.measure.stepping import Stepper
from ops.rules.replay import MOST_NODES, Recorded
from ops.rules.wide_tree import ROOT, WideTree
from schemas import SamplingParams
from workers.torch_engine.growth import rows_of
from workers.torch_engine.method import Method
from workers.torch_engine.models.draft_logits import DraftLogits
from workers.torch_engine.parts import Drafter, Plan, Proposal
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.tree import Path

LEVELS, RANKS = 4, 8
"""Of a recorded tree: its depth, and the children of a node that has any."""


class WideProbe:
    """Selector, tree and stop of a method that decodes one answer plainly.

    Of every level the MOST_NODES most valuable nodes are read, and the favourite's favourite and so
    on: so every rule of so many nodes finds its own there. What was grown is noted and dropped, so
    that a step begins at every position.
    """

    samples = False

    def __init__(self, drafter: Drafter) -> None:
        self._plan = Plan(drafter, self, self)
        self._ranks, self._entropies = list[int](), list[float]()
        self.grown: list[tuple[list[int], WideTree]] = []
        """Of every position that was drafted from, the nodes' tokens and the tree, of which nobody
        knows yet what came."""

    def choose(self, sequence: DecodeSequence) -> Plan:  # noqa: ARG002
        """As a selector: the probe itself."""
        return self._plan

    def limit(self, sequence: DecodeSequence, batch: int) -> int:  # noqa: ARG002
        """As a stop: all levels."""
        return LEVELS

    def goes_on(self, proposal: Proposal) -> bool:  # noqa: ARG002
        """As a stop: always."""
        return True

    def observe(self, proposal: Proposal, path: Path) -> None:
        """Nothing to learn."""

    def expand(self, proposals: Sequence[Proposal], logits: DraftLogits) -> None:
        """As a tree: every frontier node's best children."""
        [proposal], [rows] = proposals, rows_of(proposals, logits)
        if not len(proposal):
            self._ranks, self._entropies = [], []
        scores, tokens = logits.best(min(RANKS, logits.vocab))
        # the frontier begins with the favourite's favourite, whose nodes are the first of all
        log_q = logits.values[rows[0]].log_softmax(-1)
        self._entropies.append(-(log_q.exp() * log_q).nansum().item())
        below = list[int]()
        for node, row in zip(proposal.frontier, rows, strict=True):
            value = 0.0 if node == ROOT else proposal.values[node]
            for rank, (score, token) in enumerate(zip(scores[row], tokens[row], strict=True)):
                below.append(proposal.add(token, node, value=value + score))
                self._ranks.append(rank)
        best = sorted(below, key=lambda node: -proposal.values[node])[:MOST_NODES]
        proposal.frontier = sorted({below[0], *best})

    def finish(self, proposals: Sequence[Proposal]) -> None:
        """As a tree: note it, and verify nothing of it."""
        [proposal] = proposals
        columns = proposal.parents, self._ranks, proposal.depths, proposal.values
        self.grown.append((proposal.tokens, WideTree(*columns, self._entropies)))
        proposal.keep([])


def record(
    stepper: Stepper, method: Method, item: EncodedPrompt, max_tokens: int
) -> tuple[list[int], Recorded]:
    """The target's answer, and the method's drafter along it: a tree for each token from the second
    on, empty for the last, which is not drafted. The method decodes plainly from now on."""
    probe = WideProbe(method.plan.drafter)
    method.selector = probe
    sampling = SamplingParams(temperature=0.0, max_tokens=max_tokens)
    answer, _ = stepper.decode(method, item.token_ids, sampling)
    trees = [
        tree.known(tokens, answer[place:])
        for place, (tokens, tree) in enumerate(probe.grown, 1)
        if place < len(answer)
    ]
    trees += [WideTree()] * (len(answer) - 1 - len(trees))
    return answer, Recorded(item.prompt.id, item.prompt.domain, trees)
