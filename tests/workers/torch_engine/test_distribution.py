"""Sampled answers follow the target's own distribution: first tokens against exact enumeration.

Verifiers meet tables as models (table_world) for every kind of proposal and parameter; a few whole
engines decode with real models over the same vocabulary of five.
"""

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
import table_world as world
from any_choice import choose_anyhow
from decoding import method_of
from engine_chances import answers_p_value

from schemas import MethodSpec, SamplingParams
from workers.bundle import Bundle
from workers.methods import get_method
from workers.torch_engine import registry
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.tree import TokenTree

RIGHT = 1e-3
COUNT = 2000
LOSSY = {"fuzzy", "typical"}
CASES = [
    ("target_choice", world.sampled),
    ("target_choice", world.chosen),
    ("target_choice", world.top_two),
    ("rejection", world.sampled),
    ("rejection", world.chosen),
    ("rejection", world.mixed),
    ("one_hot", world.chosen),
    ("one_hot", world.top_two),
    ("multi_step", world.grown("static", widths=(2, 2, 1), sample=True)),
]
TREES = [
    ("target_choice", world.grown("static", widths=(3, 2, 1), sample=True)),
    ("one_hot", world.grown("static", paths="0 1 2 0.0 0.2 1.0 0.2.0 0.2.1")),
    ("one_hot", world.grown("eagle2", nodes=6, k=3)),
    ("multi_step", world.grown("static", widths=(2, 2, 1))),
    ("multi_step", world.grown("static", widths=(5, 2, 1), sample=True)),
    ("multi_step", world.two_drafters),
]
WISHES: list[dict[str, Any]] = [
    {"temperature": 1.5, "top_k": 4, "min_p": 0.15, "min_tokens": 2, "stop_token_ids": (1,)},
    {
        "temperature": 0.7,
        "top_p": 0.8,
        "logit_bias": {0: 1.5, 3: -2.0},
        "presence_penalty": 0.9,
        "frequency_penalty": 0.6,
        "repetition_penalty": 1.4,
    },
]


@pytest.mark.parametrize(("wishes", "repeats"), zip(WISHES, (True, False), strict=True))
@pytest.mark.parametrize(("verifier", "draft"), CASES)
def test_every_verifier_under_every_parameter_and_a_grammar(verifier, draft, wishes, repeats):
    made = registry.build("verifier", verifier, None, {})
    sampling = SamplingParams.model_validate(wishes)
    assert world.fit(made, draft, sampling, COUNT, repeats) > RIGHT


@pytest.mark.parametrize(("verifier", "draft"), world.DRAWING, ids=world.NAMES)
def test_a_step_emits_the_targets_distribution(verifier: str, draft: world.Drafting) -> None:
    """Closer than samples can tell."""
    made = registry.build("verifier", verifier, None, {})
    assert world.error_of_a_step(made, draft) < world.EXACT


@pytest.mark.parametrize("wishes", WISHES, ids=str)
def test_answers_under_seeds(wishes: dict[str, Any]) -> None:
    sampling = SamplingParams.model_validate(wishes)
    greedy = registry.build("verifier", "target_choice", None, {})
    said = world.answers(greedy, world.nothing, world.seeded(sampling, COUNT))
    assert world.fit_of(said, sampling) > RIGHT


SEEDED = world.seeded(SamplingParams(temperature=0.9, top_p=0.9), 150)


@pytest.fixture(scope="module")
def plain() -> list[world.Answer]:
    greedy = registry.build("verifier", "target_choice", None, {})
    return world.answers(greedy, world.nothing, SEEDED)


@pytest.mark.parametrize(("verifier", "draft"), CASES + TREES)
def test_under_a_seed_every_verifier_says_the_same(verifier: str, draft: Any, plain: Any) -> None:
    assert world.answers(registry.build("verifier", verifier, None, {}), draft, SEEDED) == plain


@pytest.mark.parametrize(("verifier", "draft"), TREES)
def test_more_trees(verifier: str, draft: world.Drafting) -> None:
    sampling = SamplingParams(temperature=0.7, top_p=0.9)
    made = registry.build("verifier", verifier, None, {})
    assert world.fit(made, draft, sampling, COUNT) > RIGHT


def test_no_lossless_verifier_is_forgotten() -> None:
    registry.build("verifier", "target_choice", None, {})
    names = {name for role, name in registry._PARTS if role == "verifier"}
    assert names - LOSSY == {verifier for verifier, _ in CASES}


def spec(drafter: str, verifier: str, tree: str = "chain", /, **settings: Any) -> MethodSpec:
    return method_of(f"{drafter}_{tree}_{verifier}", drafter, tree, verifier, **settings)


ENGINES = [
    (spec("draft_model", "rejection"), {"temperature": 0.8, "top_p": 0.9}),
    (get_method("specinfer"), {"temperature": 0.8, "top_p": 0.9}),
]
MORE_ENGINES: list[tuple[MethodSpec, dict[str, Any]]] = [
    (
        spec("eagle3", "multi_step", "static", tree={"widths": (2, 2), "sample": True}),
        {"temperature": 1.3},
    ),
    (spec("eagle3", "rejection"), {"frequency_penalty": 0.5}),
    (get_method("medusa"), {"top_k": 4}),
]


@pytest.mark.parametrize(
    ("method", "wishes"),
    [*ENGINES, *(pytest.param(*each, marks=pytest.mark.slow) for each in MORE_ENGINES)],
    ids=lambda v: getattr(v, "name", ""),
)
async def test_whole_engines(load_engine, five, method, wishes):
    assert await answers_p_value(load_engine, five, method, wishes, world.VOCAB) > RIGHT


async def test_a_whole_engine_that_chooses_among_drafters(
    load_engine, five: Bundle, cost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step any drafter for any of the sequences, with what is foretold beside it, and all of
    it verified: who drafted says nothing of what is said."""
    cost(np.ones_like)
    choose_anyhow(monkeypatch, random.Random(1))
    settings = {"drafter": {"learned": "medusa,eagle3"}, "stop": {"gamma": 4}}
    method = get_method("adaptive").model_copy(update={"settings": settings})
    wishes = {"temperature": 0.8, "top_k": 4}
    used = Counter[str]()
    emit = DecodeSequence.emit

    def counted(sequence: DecodeSequence, tree: TokenTree, *told: Any) -> None:
        used[told[-1] or ""] += tree.drafted_levels
        emit(sequence, tree, *told)

    monkeypatch.setattr(DecodeSequence, "emit", counted)
    assert await answers_p_value(load_engine, five, method, wishes, world.VOCAB) > RIGHT
    assert all(used[name] > 100 for name in ("medusa", "eagle3", "suffix"))
