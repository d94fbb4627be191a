"""What `adaptive` does with a step: by its cost and by what was accepted before."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from any_choice import anyhow
from decoding import assert_greedy, decode
from rig import has_seen

from schemas import MethodSpec
from workers.bundle import Bundle, BundleError
from workers.drafting import controller
from workers.drafting.goodput import Choice
from workers.drafting.step_costs import Draft, StepCosts
from workers.methods import get_method

TOKENS = 40


def prompt(length: int = 12) -> list[int]:
    return random.Random(length).sample(range(256), length)


async def test_where_every_row_costs_a_step_nothing_is_drafted(
    load_engine, byte_bundle: Bundle, cost
) -> None:
    cost(lambda rows: rows)
    engine = load_engine(["adaptive"], byte_bundle)
    stats = (await decode(engine, "adaptive", prompt(), max_tokens=TOKENS)).stats
    assert list(stats.by_drafter) == ["none"]
    assert stats.drafted_tokens == 0


@pytest.mark.parametrize("best", ["medusa", "eagle3"])
async def test_the_drafter_that_did_best_drafts_first(
    load_engine, byte_bundle: Bundle, cost, best: str
) -> None:
    cost(np.ones_like)
    engine = load_engine(["adaptive"], byte_bundle)
    has_seen(engine, **({"medusa": 0, "eagle3": 0} | {best: 3}))
    answer = await decode(engine, "adaptive", prompt(), max_tokens=3)
    assert best in answer.stats.by_drafter
    answer = await decode(engine, "adaptive", prompt(), max_tokens=TOKENS)
    assert_greedy(byte_bundle, prompt(), answer.tokens, TOKENS)


async def test_one_drafter_whose_length_is_decided(load_engine, byte_bundle: Bundle, cost) -> None:
    cost(lambda rows: np.maximum(rows, 4.0))  # three draft tokens beside the root cost nothing
    engine = load_engine(["adaptive_length"], byte_bundle)
    answer = await decode(engine, "adaptive_length", prompt(), max_tokens=TOKENS)
    assert answer.stats.by_drafter.keys() <= {"eagle3", "none"}
    assert 0 < answer.stats.drafted_tokens <= 3 * answer.stats.target_steps
    assert_greedy(byte_bundle, prompt(), answer.tokens, TOKENS)


def test_nobody_left_to_draft_is_refused(load_engine, byte_bundle: Bundle) -> None:
    parts = {name: part for name, part in byte_bundle.parts.items() if name != "eagle3"}
    with pytest.raises(BundleError, match="has no part 'eagle3'"):
        load_engine(["adaptive_length"], replace(byte_bundle, parts=parts))


def test_nobody_named_to_draft_is_refused(load_engine, byte_bundle: Bundle) -> None:
    settings = {"drafter": {"learned": "", "look_ups": False}}
    nobody = get_method("adaptive").model_copy(update={"settings": settings})
    with pytest.raises(ValueError, match="no drafter is left: name methods in learned"):
        load_engine([nobody], byte_bundle)


async def test_the_drafters_account_for_all_steps(load_engine, byte_bundle: Bundle) -> None:
    engine = load_engine(["adaptive"], byte_bundle)
    stats = (await decode(engine, "adaptive", prompt(), max_tokens=TOKENS)).stats
    counted = stats.by_drafter.values()
    assert sum(one.steps for one in counted) == stats.target_steps - 1  # the prefill drafts nothing
    assert sum(one.drafted_tokens for one in counted) == stats.drafted_tokens
    assert sum(one.accepted_tokens for one in counted) == stats.accepted_tokens


async def test_fixed_methods_count_no_drafters(load_engine, byte_bundle: Bundle) -> None:
    engine = load_engine(["suffix"], byte_bundle)
    answer = await decode(engine, "suffix", prompt(), max_tokens=TOKENS)
    assert answer.stats.by_drafter == {}


@pytest.mark.parametrize(
    "seed", [*range(10), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(10, 300))]
)
def test_any_switches_leave_the_answers_alone(
    make_rig, byte_bundle: Bundle, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Every step any drafter for any of the sequences, which come and go; the others copy, or
    draft nothing."""
    draw = random.Random(seed)
    monkeypatch.setattr(controller, "choose", anyhow(draw))
    rig = make_rig(byte_bundle, ["adaptive"], prefill_chunk=16)
    prompts = [prompt(draw.randint(1, 60)) for _ in range(6)]
    asked = []
    for one in prompts:
        asked.append((one, rig.submit("adaptive", one, max_tokens=TOKENS)))
        for _ in range(draw.randint(0, 6)):
            rig.round()
    while any(sequence.finished is None for _, sequence in asked):
        rig.round()
    used = {name for _, sequence in asked for name in sequence.tally.by_drafter}
    assert used >= {"none", "medusa", "eagle3"}
    for one, sequence in asked:
        assert_greedy(byte_bundle, one, sequence.tokens[len(one) :], TOKENS)


def test_it_knows_who_waits_for_its_drafts(
    make_rig, byte_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sequences of other drafters in the step."""
    beside: set[float] = set()

    def nothing(looked_up: Sequence[Sequence[float]], _offers: Any, _step: Any, b: float) -> Choice:
        beside.add(b)
        return Choice([0] * len(looked_up), None, [], 0.0)

    monkeypatch.setattr(controller, "choose", nothing)
    rig = make_rig(byte_bundle, ["adaptive", "naive"])
    alone = rig.submit("adaptive", prompt(), max_tokens=4)
    while alone.finished is None:
        rig.round()
    assert beside == {0}
    asked = [rig.submit(m, prompt(), max_tokens=8) for m in ("naive", "adaptive", "naive")]
    while any(sequence.finished is None for sequence in asked):
        rig.round()
    assert max(beside) == 2


def deciding(learned: str) -> MethodSpec:
    settings = {"drafter": {"learned": learned, "look_ups": False}, "stop": {"gamma": 4}}
    return get_method("adaptive").model_copy(update={"settings": settings})


@pytest.fixture
def paid(cost, monkeypatch: pytest.MonkeyPatch) -> list[Draft]:
    """Every draft whose seconds are learned from, and was drafted whatever it cost."""
    cost(np.ones_like)
    drafts = list[Draft]()
    monkeypatch.setattr(StepCosts, "saw_drafting", lambda _, __, draft, ___: drafts.append(draft))
    return drafts


def test_a_chunk_is_paid_for_as_a_chunk(make_rig, byte_bundle: Bundle, paid: list[Draft]) -> None:
    """A draft model reads a long prompt chunk by chunk, and drafts nothing before its end."""
    rig = make_rig(byte_bundle, [deciding("draft_verify")], prefill_chunk=32)
    paid.clear()  # the rehearsal's
    has_seen(rig.engine, draft_verify=6)
    rig.finish(rig.submit("adaptive", prompt(100), max_tokens=12))
    reading = [draft for draft in paid if draft.late]
    # the last few are read with the first draft token
    assert [draft.missing for draft in reading] == [32, 32, pytest.approx(36, abs=3)]
    assert [draft.levels > 0 for draft in reading] == [False, False, True]
    assert all(draft.levels > 0 for draft in paid[3:])


@pytest.mark.parametrize("learned", ["draft_verify", "eagle3"])
def test_what_the_prefix_cache_holds_is_not_paid_for_again(
    make_rig, byte_bundle: Bundle, paid: list[Draft], learned: str
) -> None:
    rig = make_rig(byte_bundle, [deciding(learned)])
    has_seen(rig.engine, **{learned: 6})
    asked, missing = prompt(80), list[float]()
    for turn in range(2):
        paid.clear()
        sequence = rig.submit("adaptive", asked, max_tokens=20)
        (answer,) = rig.finish(sequence)
        missing.append(sum(draft.missing for draft in paid))
        asked = [*asked, *answer.tokens, *prompt(20 + turn)]
    assert missing[0] == pytest.approx(80, abs=2)
    assert missing[1] == pytest.approx(20, abs=4)
