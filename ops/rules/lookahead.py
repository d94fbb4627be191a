"""Lookahead decoding: n-grams from the target's own parallel guesses, really decoded."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ops.measure.decoding import EncodedPrompt
from ops.measure.stepping import Stepper
from ops.rules.costs import Costs
from router.speedup import BASELINE, harmonic_mean
from schemas import SamplingParams
from workers.torch_engine.parts import Drafter, Plan, Proposal
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.target_output import TargetOutput
from workers.torch_engine.tree import ROOT, Path

SHAPES = {"Jacobi": (6, 2, 0), "lookahead": (5, 3, 5), "lookahead, wide": (10, 4, 10)}
"""The windows that are decoded with: columns, n of the n-grams, n-grams that are verified."""
LOOK_UP = "ngram"
"""The method that copies from the text, to compare with."""


@dataclass
class _Window:
    """Guesses of one sequence: rows of one, two, ... tokens further on, each from what the target
    said of the one above it; the first row's first column is the sequence's last token, which is
    not in it. newest: the nodes of the last row's columns in this step's tree."""

    rows: list[list[int]]
    pool: dict[int, list[tuple[int, ...]]] = field(default_factory=dict)
    newest: list[int] = field(default_factory=list)


class Lookahead:
    """Jacobi iteration over a window of guesses, and a pool of the n-grams that it has gone
    through; those that begin with the last token are verified beside the window (Fu et al. 2024,
    arXiv 2402.02057; the window moves by one token a step, as its authors' code has it by default).

    Guesses and n-grams are one tree under the last token, in which the window's own first row is
    verified as well, which costs nothing. columns: the window's width; size: n of the n-grams;
    guesses: n-grams that are verified at most, 0 is Jacobi decoding alone. A step has
    (columns + guesses)(size - 1) rows.
    """

    captures: frozenset[int] = frozenset()
    has_distribution = False

    def __init__(self, columns: int, size: int, guesses: int, seed: int) -> None:
        self._columns, self._size, self._guesses = columns, size, guesses
        self._rng = random.Random(seed)
        self._windows: dict[int, _Window] = {}

    def propose(self, proposals: Sequence[Proposal]) -> None:
        """The window, and the n-grams that are known to follow the last token."""
        for proposal in proposals:
            tokens = proposal.sequence.tokens
            window = self._windows.get(proposal.sequence.id)
            if window is None:
                length = self._columns + self._size - 3
                window = _Window([self._rng.choices(tokens, k=length)])
                self._windows[proposal.sequence.id] = window
            at = [ROOT]
            for token in window.rows[0]:
                at.append(_node(proposal, token, at[-1]))
            for row in window.rows[1:]:
                at = [_node(proposal, token, above) for token, above in zip(row, at, strict=True)]
            window.newest = at
            for gram in window.pool.get(tokens[-1], ()):
                node = ROOT
                for token in gram:
                    node = _node(proposal, token, node)

    def commit(self, proposal: Proposal, path: Path, output: TargetOutput) -> None:  # noqa: ARG002
        """What the target says below the newest row is the next one."""
        window = self._windows.get(proposal.sequence.id)
        if window is None or not len(proposal):
            return
        said = [output.best[proposal.row + 1 + node] for node in window.newest]
        if len(window.rows) < self._size - 1:
            window.rows = [row[1:] for row in [*window.rows, said]]
            return
        first = [proposal.sequence.tokens[-1], *window.rows[0]]
        for key, *gram in zip(first, *window.rows[1:], said, strict=True):
            known = window.pool.setdefault(key, [])
            known[:] = [one for one in known if one != tuple(gram)] + [tuple(gram)]
            del known[: len(known) - self._guesses]
        window.rows = [*window.rows[1:], said]
        window.rows[0] = window.rows[0][1:]

    def release(self, sequence: DecodeSequence) -> None:
        """Forget the sequence's window and pool."""
        self._windows.pop(sequence.id, None)


class _Noted:
    """As a selector: always a method's plan with another drafter; as that drafter: notes how many
    nodes it drafts."""

    captures: frozenset[int] = frozenset()
    has_distribution = False

    def __init__(self, plan: Plan, drafter: Drafter) -> None:
        self._plan, self._drafter = replace(plan, drafter=self), drafter
        self.nodes: list[int] = []

    def choose(self, sequence: DecodeSequence) -> Plan:  # noqa: ARG002
        """The plan."""
        return self._plan

    def observe(self, proposal: Proposal, path: Path) -> None:
        """Nothing to learn."""

    def propose(self, proposals: Sequence[Proposal]) -> None:
        """See Drafter."""
        self._drafter.propose(proposals)
        self.nodes += map(len, proposals)

    def commit(self, proposal: Proposal, path: Path, output: TargetOutput) -> None:
        """See Drafter."""
        self._drafter.commit(proposal, path, output)

    def release(self, sequence: DecodeSequence) -> None:
        """See Drafter."""
        self._drafter.release(sequence)


def decode_all(
    stepper: Stepper,
    answers: Sequence[tuple[EncodedPrompt, Sequence[int]]],
    costs: Costs,
    seed: int,
    advance: Callable[[], None],
) -> dict[str, dict[str, float]]:
    """By drafter the tokens and the draft tokens of a step after the first, the speedup that these
    would have (harmonic mean over answers), and the share of answers that are the plain ones, token
    for token. stepper: with the methods naive and ngram."""
    methods = stepper.models.methods
    plain = methods[BASELINE]
    drafters: dict[str, tuple[Plan, Drafter]] = {
        name: (plain.plan, Lookahead(*shape, seed)) for name, shape in SHAPES.items()
    }
    drafters[LOOK_UP] = methods[LOOK_UP].plan, methods[LOOK_UP].plan.drafter
    found = {}
    for name, (plan, drafter) in drafters.items():
        emitted, nodes, rates, same = 0, list[int](), list[float](), 0
        for item, answer in answers:
            plain.selector = noted = _Noted(plan, drafter)
            sampling = SamplingParams(temperature=0.0, max_tokens=len(answer))
            tokens, steps = stepper.decode(plain, item.token_ids, sampling)
            drafted = noted.nodes + [0] * (steps.count - len(noted.nodes))
            seconds = sum(costs.seconds((), count) for count in drafted)
            rates.append(steps.emitted * costs.plain / seconds)
            emitted, nodes, same = (
                emitted + steps.emitted,
                nodes + drafted,
                same + (tokens == [*answer]),
            )
            advance()
        found[name] = {
            "speedup": harmonic_mean(rates),
            "tokens_per_step": emitted / len(nodes),
            "nodes": sum(nodes) / len(nodes),
            "same_answers": same / len(answers),
        }
    return found


def _node(proposal: Proposal, token: int, parent: int) -> int:
    """The parent's child with this token, which is added where it has none."""
    for child in proposal.children(parent):
        if proposal.tokens[child] == token:
            return child
    return proposal.add(token, parent)
