"""Wrong rules are found out: each mutant is put in place, and the check that guards it must fail.

A mutant is the engine's own source with one thing changed.
"""

import sys
from typing import Any

import pytest
import table_world as world
from mutants import mutated
from test_grammar import COMPILER, TOKENIZER

from schemas import Grammar, SamplingParams
from workers.torch_engine import constraint
from workers.torch_engine.interfaces import Proposal
from workers.torch_engine.tree import ROOT, TokenTree
from workers.torch_engine.trees import chain
from workers.torch_engine.verifiers import multi_step, one_hot, rejection, target_choice
from workers.torch_engine.verifiers.multi_step import MultiStep
from workers.torch_engine.verifiers.rejection import Rejection
from workers.torch_engine.verifiers.target_choice import TargetChoice
from workers.torch_engine.verifiers.traversal import Traversal

WRONG = 1e-6
COUNT = 2000
DISTINCT = world.grown("static", widths=(2, 2, 1), sample=True)


def fit(verifier: type[Any], draft: world.Drafting, **wishes: float) -> float:
    sampling = SamplingParams.model_validate({"temperature": 1.0} | wishes)
    return world.fit(world.build(verifier), draft, sampling, COUNT)


ACCEPTS = "draws[accepted] * q_drawn[first + accepted] >= p_drawn[first + accepted]"
# verifier, drafting, the line and its wrong form
VERIFIER_MUTANTS = {
    "biased residual": (
        *(rejection, "Rejection", world.sampled),
        *(" - q[[draft for _, draft in rejected]]", ""),
    ),
    "accepts on q/p": (
        *(rejection, "Rejection", world.sampled, ACCEPTS),
        "draws[accepted] * p_drawn[first + accepted] >= q_drawn[first + accepted]",
    ),
    "chosen tokens always accepted": (
        *(rejection, "Rejection", world.chosen, ACCEPTS),
        "p_drawn[first + accepted] <= 0.05",
    ),
    "bonus from the root's row": (
        *(rejection, "Rejection", world.sampled),
        "p[[start + count for start, count in zip(starts, kept, strict=True)]]",
        "p[[start for start, _ in zip(starts, kept, strict=True)]]",
    ),
    "siblings without renormalising": (
        *(one_hot, "OneHot", world.top_two, "left -= chance", "left -= 0.0"),
    ),
    "refused tokens come back": (
        *(one_hot, "OneHot", world.top_two),
        "weights[[row for row, _ in refusals], [token for _, token in refusals]] = 0.0",
        "pass",
    ),
    "tree: rejected without a residual": (
        *(multi_step, "MultiStep", DISTINCT, "own = (own - q).clamp_(min=0.0)", "pass"),
    ),
    "tree: accepts on q/p": (
        *(multi_step, "MultiStep", DISTINCT),
        *("own.gather(1, at) / q.gather(1, at)", "q.gather(1, at) / own.gather(1, at)"),
    ),
    "tree: bonus from p though children were rejected": (
        *(multi_step, "MultiStep", DISTINCT, "residual[ends]", "p[ends]"),
    ),
    "one draw for a whole tree": (
        *(target_choice, "TargetChoice", world.sampled),
        "uniforms(len(p) + 1, p.sequence.rng)",
        "uniforms(1, p.sequence.rng) * (len(p) + 1)",
    ),
}


@pytest.mark.parametrize("name", VERIFIER_MUTANTS)
def test_wrong_verifiers(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    module, verifier, draft, old, new = VERIFIER_MUTANTS[name]
    made = mutated(monkeypatch, module, old, new)
    assert fit(getattr(made, verifier), draft) < WRONG


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
    assert fit(Rejection, world.sampled, temperature=0.7, top_p=0.8) < WRONG


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


def test_noise_of_another_place_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every node drawn under the noise of the root: drafts then change what is said."""
    asked = world.seeded(SamplingParams(temperature=0.9), 500)
    plain = world.answers(world.build(TargetChoice), world.nothing, asked)
    wrong = lambda self, _: (self.sequence.sampling.seed, self.sequence.answer_index)  # noqa: E731
    monkeypatch.setattr(Proposal, "place", wrong)
    assert world.answers(world.build(Rejection), world.sampled, asked) != plain
