"""Wrong rules for trees are found out, as in test_mutants."""

from typing import Any

import pytest
import table_world as world
from test_mutants import COUNT, PLAIN, WRONG, fit, mutated

from schemas import SamplingParams
from workers.torch_engine import distribution
from workers.torch_engine.trees import static
from workers.torch_engine.verifiers import multi_step, traversal

DISTINCT = world.grown("static", widths=(2, 2, 1), sample=True)
RESIDUAL = "own = (own - q).clamp_(min=0.0)"
MUTANTS: dict[str, tuple[str, str, world.Drafting]] = {
    "rejected without a residual": (RESIDUAL, "pass", DISTINCT),
    "residual of the wrong sign": (RESIDUAL, "own = (q - own).clamp_(min=0.0)", DISTINCT),
    "residual not renormalised": (
        "own / own.sum(-1, keepdim=True).clamp_(min=torch.finfo(own.dtype).tiny)",
        "own",
        DISTINCT,
    ),
    "accepts on q/p": (
        "own.gather(1, at) / q.gather(1, at)",
        "q.gather(1, at) / own.gather(1, at)",
        DISTINCT,
    ),
    "bonus from p though children were rejected": ("residual[ends]", "p[ends]", DISTINCT),
    "chosen tokens always accepted": ("to(p.dtype)", "to(p.dtype) * 0.05", world.top_two),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_wrong_multi_steps(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    old, new, draft = MUTANTS[name]
    made = mutated(monkeypatch, multi_step, old, new)
    assert fit(made.MultiStep, draft, PLAIN) < WRONG


@pytest.mark.parametrize(
    ("old", "new"),
    [("left[ends]", "p[ends]"), ("draws[n] < own[n]", "draws[n] * draws[n] < own[n]")],
    ids=["bonus from p though children were rejected", "accepts too often"],
)
def test_wrong_traversals(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    made = mutated(monkeypatch, traversal, old, new)
    assert fit(made.Traversal, DISTINCT, PLAIN) < WRONG


def _drawn_with(monkeypatch: pytest.MonkeyPatch, draw_distinct: Any) -> float:
    monkeypatch.setattr(static, "draw_distinct", draw_distinct)
    verifier = world.build(multi_step.MultiStep)
    return world.fit(verifier, DISTINCT, SamplingParams(temperature=1.0), 2 * COUNT)


def test_q_with_the_elder_siblings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children are drawn without replacement, the verifier is told that they were with."""
    right = distribution.draw_distinct
    assert _drawn_with(monkeypatch, lambda q, u: [(t, q) for t, _ in right(q, u)]) < WRONG


def test_best_children_said_to_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    def best(q: Any, draws: Any) -> Any:
        return [
            (rank.tolist(), given)
            for rank, (_, given) in zip(
                q.topk(len(draws)).indices.T, distribution.draw_distinct(q, draws), strict=True
            )
        ]

    assert _drawn_with(monkeypatch, best) < WRONG
