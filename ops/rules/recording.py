"""Records what a drafter would say at every position of the target's own answers."""

from collections.abc import Sequence

import torch

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
from workers.torch_engine.target_output import TargetOutput
from workers.torch_engine.tree import Path

LEVELS, RANKS = 4, 8
"""Of a recorded tree: its depth, and the children of a node that has any."""


class WideProbe:
    """Selector, tree, stop and verifier of a method whose answer is known beforehand.

    Of every level the MOST_NODES most valuable nodes are read, the favourite's favourite and so on,
    and the node that the answer goes through: so every rule of so many nodes finds its own there,
    and so does any static shape as far as the answer goes along it. What was grown is noted and
    dropped, so that a step begins at every position.
    """

    needs_distribution = False
    takes_trees = True
    takes_sampled = True
    samples = False

    def __init__(self, drafter: Drafter) -> None:
        self._plan = Plan(drafter, self, self)
        self._answer: Sequence[int] = ()
        self._trees: list[WideTree] = []
        self._ranks, self._entropies, self._came = list[int](), list[float](), list[bool]()

    def begin(self, answer: Sequence[int]) -> list[WideTree]:
        """The trees, of every position from the second token on, that decoding this answer will
        fill in."""
        self._answer = answer
        self._trees = [WideTree() for _ in answer[1:]]
        return self._trees

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
            self._ranks, self._entropies, self._came = [], [], []
        scores, tokens = logits.best(min(RANKS, logits.vocab))
        chances = torch.distributions.Categorical(logits=logits.values).entropy().tolist()
        below, answer = list[int](), self._answer[proposal.sequence.output_tokens :]
        for node, row in zip(proposal.frontier, rows, strict=True):
            value = 0.0 if node == ROOT else proposal.values[node]
            above = node == ROOT or self._came[node]
            for rank, (score, token) in enumerate(zip(scores[row], tokens[row], strict=True)):
                below.append(proposal.add(token, node, value=value + score))
                self._ranks.append(rank)
                self._entropies.append(chances[row])
                self._came.append(above and token == answer[proposal.depths[-1]])
        best = sorted(below, key=lambda node: -proposal.values[node])[:MOST_NODES]
        favourite = below[0]
        read = {*best, favourite, *(node for node in below if self._came[node])}
        # the favourite's favourite stays the first of its level
        proposal.frontier = sorted(read)

    def finish(self, proposals: Sequence[Proposal]) -> None:
        """As a tree: note it, and verify nothing of it."""
        for proposal in proposals:
            self._trees[proposal.sequence.output_tokens - 1] = WideTree(
                *(proposal.parents, self._ranks, proposal.depths, proposal.values),
                *(self._entropies, self._came),
            )
            proposal.keep([])

    def verify(self, proposals: Sequence[Proposal], output: TargetOutput) -> list[Path]:  # noqa: ARG002
        """As a verifier: one token of the answer."""
        return [Path((), self._answer[proposal.sequence.output_tokens]) for proposal in proposals]


def record(
    stepper: Stepper, method: Method, item: EncodedPrompt, answer: Sequence[int]
) -> Recorded:
    """The method's drafter along an answer; the method drafts nothing else from now on."""
    probe = WideProbe(method.plan.drafter)
    method.selector = method.verifier = probe
    trees = probe.begin(answer)
    sampling = SamplingParams(temperature=0.0, max_tokens=len(answer))
    stepper.decode(method, item.token_ids, sampling)
    return Recorded(item.prompt.id, item.prompt.domain, trees)
