"""A world small enough to enumerate: target and drafter are tables over the last two tokens.

Trees, verifiers and the processing of logits are the engine's own; only the models are tables, so
thousands of sequences take a step together.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from sampling_reference import Answer, chances, p_value
from scipy.stats import qmc
from torch import Tensor

from schemas import DecodeRequest, SamplingParams
from workers.torch_engine import registry
from workers.torch_engine.distribution import draw, warp, warp_each
from workers.torch_engine.interfaces import Proposal, TargetOutput, Verifier
from workers.torch_engine.logit_processor import LogitProcessor, make_logit_processor
from workers.torch_engine.models.draft_logits import DraftLogits
from workers.torch_engine.processed_logits import process
from workers.torch_engine.tree import ROOT
from workers.torch_engine.trees.chain import Chain
from workers.torch_engine.verifiers import dead_nodes

VOCAB = 5
TOKENS = 3
LEVELS = 3
PROMPT = [0, 1, 2]

_generator = torch.Generator().manual_seed(11)
TARGET = torch.randn(VOCAB, VOCAB, VOCAB, generator=_generator) * 1.3
DRAFT = TARGET + torch.randn(VOCAB, VOCAB, VOCAB, generator=_generator)

Drafting = Callable[[Sequence[Proposal]], None]


@dataclass
class Said:
    """A sequence as far as trees, verifiers and processing look at it."""

    id: int
    sampling: SamplingParams
    processor: LogitProcessor | None
    rng: random.Random
    tokens: list[int] = field(default_factory=lambda: list(PROMPT))

    @property
    def answer_index(self) -> int:
        return len(self.tokens) - len(PROMPT)


class NoRepeats:
    """A grammar by hand: no token twice in a row. Stands where a request's Constraint does."""

    def __init__(self) -> None:
        self._last = PROMPT[-1]

    def advance(self, tokens: Sequence[int]) -> None:
        self._last = [self._last, *tokens][-1]

    def masks(self, proposal: Proposal) -> NDArray[np.bool_]:
        mask = np.ones((len(proposal) + 1, VOCAB), dtype=np.bool_)
        mask[range(len(proposal) + 1), [self._last, *proposal.tokens]] = False
        return mask


class _World:
    vocab = VOCAB


def pair(proposal: Proposal, node: int) -> tuple[int, int]:
    """The last two tokens at a node."""
    before = proposal.sequence.tokens
    if node == ROOT:
        return before[-2], before[-1]
    parent = proposal.parents[node]
    return before[-1] if parent == ROOT else proposal.tokens[parent], proposal.tokens[node]


def rows(table: Tensor, pairs: Sequence[tuple[int, int]]) -> Tensor:
    """Logits [n, vocab] at so many contexts."""
    first, second = torch.tensor(pairs).unbind(1)
    return table[first, second]


def frontier_logits(proposals: Sequence[Proposal]) -> DraftLogits:
    """The drafter's logits at every frontier node."""
    said = rows(DRAFT, [pair(p, node) for p in proposals for node in p.frontier])
    return DraftLogits.of_all(said)


def warped(table: Tensor, placed: Sequence[tuple[Proposal, int]]) -> Tensor:
    """q [n, vocab] of a drafter at so many nodes, as their requests decode."""
    logits = rows(table, [pair(proposal, node) for proposal, node in placed])
    return warp_each(logits, [proposal.sequence.sampling for proposal, _ in placed])


def sampled(proposals: Sequence[Proposal]) -> None:
    """A chain drawn from the drafter."""
    for _ in range(LEVELS):
        Chain(_World()).expand(proposals, frontier_logits(proposals))


def chosen(proposals: Sequence[Proposal]) -> None:
    """A chain of the drafter's argmaxes."""
    for _ in range(LEVELS):
        best = frontier_logits(proposals).favourites()
        for proposal, token in zip(proposals, best, strict=True):
            proposal.frontier = [proposal.add(token, proposal.frontier[0])]


def mixed(proposals: Sequence[Proposal]) -> None:
    """A chain of one chosen node, then drawn ones."""
    for proposal in proposals:
        proposal.frontier = [proposal.add(proposal.sequence.tokens[-1], ROOT)]
    sampled(proposals)


def grown(tree: str, **settings: Any) -> Drafting:
    """A registered tree grown by the drafter."""

    def draft(proposals: Sequence[Proposal]) -> None:
        made = registry.build("tree", tree, _World(), settings)
        active = list(proposals)
        while active and active[0].drafted_levels < LEVELS:
            made.expand(active, frontier_logits(active))
            active = [proposal for proposal in active if proposal.frontier]
        made.finish(proposals)

    draft.__name__ = f"{tree} {settings}"
    return draft


top_two = grown("static", paths="0 1 0.0 0.1 0.0.0 0.0.1")
"""The drafter's two best children at every level; only the best one is extended."""


def two_drafters(proposals: Sequence[Proposal]) -> None:
    """Siblings of three kinds: drawn from one drafter, chosen, and drawn from another."""
    for node in (ROOT, 0):
        placed = [(proposal, node) for proposal in proposals]
        for table in (DRAFT, -DRAFT):
            q = warped(table, placed)
            drawn = draw(q, [p.sequence.rng.random() for p in proposals])
            for proposal, token, row in zip(proposals, drawn, q, strict=True):
                proposal.add(token, node, q=row)
                if table is DRAFT:
                    proposal.add(proposal.sequence.tokens[-1], node)


def answers(
    verifier: Verifier,
    draft: Drafting,
    wishes: Sequence[SamplingParams],
    grammar: Callable[[], Any] = lambda: None,
    last: int | None = None,
) -> list[Answer]:
    """The first tokens of an answer for each request, all decoded side by side; `last` ends one."""
    everyone = active = [said(number, wish, grammar()) for number, wish in enumerate(wishes)]
    begun = len(PROMPT)
    while active:
        proposals = [Proposal(sequence=said, plan=None, limit=LEVELS) for said in active]
        draft(proposals)
        paths = dead_nodes.verify(verifier, proposals, process(proposals, _target(proposals)))
        for proposal, path in zip(proposals, paths, strict=True):
            emitted = [*(proposal.tokens[node] for node in path.nodes), path.bonus]
            assert last not in emitted[:-1], "nothing follows it"
            proposal.sequence.tokens += emitted
        active = [s for s in active if s.tokens[-1] != last and len(s.tokens) < begun + TOKENS]
    return [tuple(said.tokens[begun : begun + TOKENS]) for said in everyone]


def seeded(sampling: SamplingParams, count: int) -> list[SamplingParams]:
    """So many requests with a seed each."""
    return [sampling.model_copy(update={"seed": seed}) for seed in range(count)]


def nothing(_: Sequence[Proposal]) -> None:
    """No draft at all."""


def fit(
    verifier: Verifier, draft: Drafting, sampling: SamplingParams, count: int, repeats: bool = True
) -> float:
    """p-value of the answers' exact distribution; repeats: whether a token may follow itself."""
    grammar = (lambda: None) if repeats else NoRepeats
    return fit_of(answers(verifier, draft, [sampling] * count, grammar), sampling, repeats)


def fit_of(said: Sequence[Answer], sampling: SamplingParams, repeats: bool = True) -> float:
    """p-value of these answers."""

    def logits(context: list[int]) -> Tensor:
        row = TARGET[*context[-2:]].clone()
        return row if repeats else row.index_fill(0, torch.tensor(context[-1]), -torch.inf)

    exact = chances(logits, PROMPT, TOKENS, VOCAB, sampling)
    return p_value(Counter(said), exact)


DRAWS, EVEN = 24, 12
"""Draws of a step, and the logarithm of how many steps spread them evenly."""


EXACT = 2.5e-3
"""Greatest error of a right rule."""
DRAWING = [
    ("rejection", sampled),
    ("one_hot", top_two),
    ("multi_step", grown("static", widths=(2, 2, 1), sample=True)),
]
NAMES = [verifier for verifier, _ in DRAWING]


class Even:
    """A generator of given draws."""

    def __init__(self, draws: Sequence[float]) -> None:
        self._draws = iter(draws)

    def random(self) -> float:
        return next(self._draws)


def error_of_a_step(verifier: Verifier, draft: Drafting) -> float:
    """The largest error of a first token's probability.

    Draws are spread evenly over all that they can be, and of a step's last token the distribution
    counts: 4096 steps are then as exact as a million random ones.
    """
    sampling = SamplingParams(temperature=1.0)
    points = qmc.Sobol(DRAWS, rng=np.random.default_rng(1)).random_base2(EVEN).tolist()
    proposals = [
        Proposal(sequence=said(number, sampling, None), plan=None, limit=LEVELS)
        for number in range(len(points))
    ]
    for proposal, point in zip(proposals, points, strict=True):
        proposal.sequence.rng = Even(point)
    draft(proposals)
    last = dict[int, Tensor]()

    def note(weights: Tensor, _: Tensor, ended: Sequence[Proposal]) -> list[int]:
        last.update((p.sequence.id, w / w.sum()) for p, w in zip(ended, weights, strict=True))
        return [0] * len(ended)

    with patch.object(sys.modules[type(verifier).__module__], "draw_bonus", note):
        paths = verifier.verify(proposals, _target(proposals))
    found = torch.zeros(VOCAB)
    for proposal, path in zip(proposals, paths, strict=True):
        if path.nodes:
            found[proposal.tokens[path.nodes[0]]] += 1.0
        else:
            found += last[proposal.sequence.id]
    exact = warp(TARGET[*PROMPT[-2:]][None], sampling)[0]
    return float((found / len(points) - exact).abs().max())


def said(number: int, sampling: SamplingParams, constraint: Any) -> Said:
    """A request that has said nothing yet, under a grammar by hand or none."""
    asked = DecodeRequest(
        request_id=str(number), method="any", prompt_token_ids=tuple(PROMPT), sampling=sampling
    )
    return Said(number, sampling, make_logit_processor(asked, constraint), random.Random(number))


def _target(proposals: Sequence[Proposal]) -> TargetOutput:
    contexts: list[tuple[int, int]] = []
    for proposal in proposals:
        proposal.row = len(contexts)
        contexts.extend(pair(proposal, node) for node in range(ROOT, len(proposal)))
    return TargetOutput(rows(TARGET, contexts), {}, {}, {})


def build(verifier: type[Any]) -> Verifier:
    """A verifier of default settings."""
    made: Verifier = verifier(_World())
    return made
