"""Wrong rules are found out: each mutant is put in place, and the check that guards it must fail.

Most mutants are the engine's own source with one thing changed; where that line is gone, the test
says so and the mutant has to be written anew.
"""

import random
import sys
from collections.abc import Sequence
from typing import Any

import pytest
import table_world as world
import torch
from mutants import mutated
from test_grammar import COMPILER, TOKENIZER

from schemas import Grammar, SamplingParams
from workers.torch_engine import constraint
from workers.torch_engine.distribution import draw
from workers.torch_engine.interfaces import Proposal, TargetOutput
from workers.torch_engine.tree import ROOT, Path, TokenTree
from workers.torch_engine.trees import chain
from workers.torch_engine.trees.chain import Chain
from workers.torch_engine.verifiers import multi_step, one_hot, rejection, target_choice
from workers.torch_engine.verifiers.multi_step import MultiStep
from workers.torch_engine.verifiers.rejection import Rejection
from workers.torch_engine.verifiers.target_choice import TargetChoice, warped_rows
from workers.torch_engine.verifiers.traversal import Traversal

WRONG, RIGHT = 1e-6, 1e-3
COUNT = 2000
PLAIN: dict[str, Any] = {}
DISTINCT = world.grown("static", widths=(2, 2, 1), sample=True)
NARROW = {"temperature": 0.7, "top_p": 0.8}


def fit(verifier: type[Any], draft: world.Drafting, wishes: dict[str, Any]) -> float:
    sampling = SamplingParams.model_validate({"temperature": 1.0} | wishes)
    return world.fit(world.build(verifier), draft, sampling, COUNT)


# module, verifier, drafting, the line and its wrong form
VERIFIER_MUTANTS = {
    "biased residual": (
        rejection,
        "Rejection",
        world.sampled,
        " - q[[draft for _, draft in rejected]]",
        "",
    ),
    "accepts on q/p": (
        rejection,
        "Rejection",
        world.sampled,
        "draws[accepted] * q_drawn[first + accepted] >= p_drawn[first + accepted]",
        "draws[accepted] * p_drawn[first + accepted] >= q_drawn[first + accepted]",
    ),
    "chosen tokens always accepted": (
        rejection,
        "Rejection",
        world.chosen,
        "draws[accepted] * q_drawn[first + accepted] >= p_drawn[first + accepted]",
        "p_drawn[first + accepted] <= 0.05",
    ),
    "bonus from the root's row": (
        rejection,
        "Rejection",
        world.sampled,
        "p[[start + count for start, count in zip(starts, kept, strict=True)]]",
        "p[[start for start, _ in zip(starts, kept, strict=True)]]",
    ),
    "siblings without renormalising": (
        one_hot,
        "OneHot",
        world.top_two,
        "left -= chance",
        "left -= 0.0",
    ),
    "refused tokens come back": (
        one_hot,
        "OneHot",
        world.top_two,
        "weights[[row for row, _ in refusals], [token for _, token in refusals]] = 0.0",
        "pass",
    ),
    "tree: rejected without a residual": (
        multi_step,
        "MultiStep",
        DISTINCT,
        "own = (own - q).clamp_(min=0.0)",
        "pass",
    ),
    "tree: accepts on q/p": (
        multi_step,
        "MultiStep",
        DISTINCT,
        "own.gather(1, at) / q.gather(1, at)",
        "q.gather(1, at) / own.gather(1, at)",
    ),
    "tree: bonus from p though children were rejected": (
        multi_step,
        "MultiStep",
        DISTINCT,
        "residual[ends]",
        "p[ends]",
    ),
    "one draw for a whole tree": (
        target_choice,
        "TargetChoice",
        world.sampled,
        "uniforms(len(p) + 1, p.sequence.rng)",
        "uniforms(1, p.sequence.rng) * (len(p) + 1)",
    ),
}


@pytest.mark.parametrize("name", VERIFIER_MUTANTS)
def test_wrong_verifiers(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    module, verifier, draft, old, new = VERIFIER_MUTANTS[name]
    made = mutated(monkeypatch, module, old, new)
    assert fit(getattr(made, verifier), draft, PLAIN) < WRONG


NEARLY = {
    "rejection": (Rejection, " - q[[draft", " - 0.9 * q[[draft"),
    "one_hot": (one_hot.OneHot, "left -= chance", "left -= 0.9 * chance"),
    "multi_step": (MultiStep, "own = (own - q)", "own = (own - 0.9 * q)"),
    "traversal": (Traversal, "excess = (own - q)", "excess = (own - 0.9 * q)"),
}


@pytest.mark.parametrize(("name", "draft"), world.DRAWING, ids=world.NAMES)
def test_nearly_right_verifiers(monkeypatch: Any, name: str, draft: world.Drafting) -> None:
    """A tenth of the drafter's distribution is left in the residual."""
    right, old, new = NEARLY[name]
    made = mutated(monkeypatch, sys.modules[right.__module__], old, new)
    wrong = world.build(getattr(made, right.__name__))
    assert world.error_of_a_step(wrong, draft) > world.EXACT


def test_q_that_was_not_drawn_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """The acceptance rule reads the drafter's raw softmax, the token came from the warped one."""
    made = mutated(monkeypatch, chain, "q=row,", "q=raw.whole()[0].softmax(-1),")
    monkeypatch.setattr(world, "Chain", made.Chain)
    assert fit(Rejection, world.sampled, NARROW) < WRONG


def confident(proposals: Sequence[Proposal]) -> None:
    """A chain that drops its last token once it has seen how unlikely it was."""
    active = list(proposals)
    for _ in range(world.LEVELS):
        Chain(world._World()).expand(active, world.frontier_logits(active))
        unsure = [p for p in active if float(p.q[-1][p.tokens[-1]]) < 0.5]
        for proposal in unsure:
            for column in ("tokens", "parents", "depths", "sampled", "q", "logits"):
                getattr(proposal, column).pop()
        active = [p for p in active if p not in unsure]
        if not active:
            return


def test_a_confidence_drop_after_the_draw() -> None:
    assert fit(Rejection, confident, PLAIN) < WRONG


class SampledRuleOnTopK:
    """The rule for drawn children (accept with p / q, then p := p - q), on the drafter's best."""

    needs_distribution = False

    def __init__(self, _context: Any) -> None: ...

    def verify(self, proposals: Sequence[Proposal], output: TargetOutput) -> list[Path]:
        p, starts = warped_rows(proposals, output)
        return [
            self._verify(proposal, p[start : start + len(proposal) + 1])
            for proposal, start in zip(proposals, starts, strict=True)
        ]

    def _verify(self, proposal: Proposal, rows: torch.Tensor) -> Path:
        rng: random.Random = proposal.sequence.rng
        node, kept = ROOT, list[int]()
        while True:
            p = rows[node + 1]
            q = world.DRAFT[*world.pair(proposal, node)].softmax(-1)
            for child in proposal.children(node):
                token = proposal.tokens[child]
                if rng.random() * q[token] < p[token]:
                    kept.append(child)
                    node = child
                    break
                p = (p - q).clamp(min=0.0)
                p = p / p.sum()
                q = q.index_fill(0, torch.tensor(token), 0.0)
                q = q / q.sum()
            else:
                return Path(tuple(kept), draw(p[None], [rng.random()])[0])


def test_the_sampled_rule_on_top_k_children() -> None:
    assert fit(SampledRuleOnTopK, world.top_two, PLAIN) < WRONG


def sibling_masks_hold(module: Any) -> bool:
    """Whether the second branch of a tree is masked as if the first had never been visited."""
    letters = {c: TOKENIZER.encode(c, add_special_tokens=False)[0] for c in "abc"}
    matcher = COMPILER.start(Grammar(kind="regex", text="(a|b)c"))
    end = {TOKENIZER.eos_token_id}
    rule = module.Constraint(matcher, len(TOKENIZER) + 9, end, COMPILER.raw)
    proposal = TokenTree()
    for letter in "ab":
        proposal.add(letters[letter], ROOT)
    masks = rule.masks(proposal)
    return all(masks[row, letters["c"]] and not masks[row, letters["b"]] for row in (1, 2))


def test_branches_of_a_grammar_that_share_a_matcher(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sibling_masks_hold(constraint)
    made = mutated(monkeypatch, constraint, "below = matcher.copy(self._drafts)", "below = matcher")
    with pytest.raises((RuntimeError, AssertionError)):
        assert sibling_masks_hold(made)


def test_the_checks_pass_without_mutants() -> None:
    assert fit(Rejection, world.sampled, PLAIN) > RIGHT
    assert fit(MultiStep, DISTINCT, PLAIN) > RIGHT


def test_noise_of_another_place_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every node drawn under the noise of the root: drafts then change what is said."""
    asked = world.seeded(SamplingParams(temperature=0.9), 500)
    plain = world.answers(world.build(TargetChoice), world.nothing, asked)
    wrong = lambda self, _: (self.sequence.sampling.seed, self.sequence.answer_index)  # noqa: E731
    monkeypatch.setattr(Proposal, "place", wrong)
    assert world.answers(world.build(Rejection), world.sampled, asked) != plain
