"""Drafters that fail: answers are as without drafts, and nobody else notices."""

import asyncio
import itertools
import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from decoding import decode, reference
from engine_chances import answers_p_value

from workers.bundle import Bundle
from workers.drafting.failures import IN_A_ROW, RESTS, Failures
from workers.methods import get_method
from workers.torch_engine.engine import TorchEngine
from workers.torch_engine.interfaces import Proposal
from workers.torch_engine.tree import ROOT

METHODS = ["ngram", "draft_verify", "eagle3", "medusa", "adaptive"]
VOCAB = 262
TOKENS = 20
PROMPTS = [list(range(10, 20)) * 2, [3, 1, 4, 1, 5, 3, 1, 4], [1, 2] * 20]


def drafters(engine: TorchEngine) -> list[Any]:
    return list(engine._scheduler._rows._drafters)


def oom(*_: object) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory on purpose")


def half(proposals: Sequence[Proposal]) -> None:
    """Fails when the first proposal has a node."""
    for proposal in proposals:
        proposal.add(1, ROOT)
        raise ArithmeticError("broken on purpose")


def each(change: Callable[[Proposal], None]) -> Callable[[Sequence[Proposal]], None]:
    def propose(proposals: Sequence[Proposal]) -> None:
        for proposal in proposals:
            change(proposal)

    return propose


def deep(proposal: Proposal) -> None:
    for _ in range(proposal.limit + 1):
        proposal.add(1, len(proposal) - 1)


def twice(proposal: Proposal) -> None:
    proposal.add(1, ROOT)
    proposal.add(1, ROOT)


def not_a_number(proposal: Proposal) -> None:
    proposal.add(1, ROOT, q=torch.full((VOCAB,), torch.nan))


def untold_branch(proposal: Proposal) -> None:
    """Two branches that say that they are a chain."""
    proposal.add(1, ROOT)
    proposal.add(2, ROOT)
    proposal.is_chain = True


def fails(drafter: Any, when: Callable[[Sequence[Proposal]], bool], *, after: bool = True) -> None:
    """From now on a drafter fails for some proposals, after it has filled them or before."""
    own = drafter.propose

    def propose(proposals: Sequence[Proposal]) -> None:
        if after:
            own(proposals)
        if when(proposals):
            raise ArithmeticError("broken on purpose")
        if not after:
            own(proposals)

    drafter.propose = propose


WRONG: dict[str, Callable[[Sequence[Proposal]], None]] = {
    "out of memory": oom,
    "half": half,
    "no such token": each(lambda p: p.add(10**6, ROOT) and None),
    "a tensor": each(lambda p: p.add(torch.tensor(1), ROOT) and None),
    "too deep": each(deep),
    "twice": each(twice),
    "NaN": each(not_a_number),
    "a NaN value": each(lambda p: p.add(1, ROOT, value=math.nan) and None),
    "a short q": each(lambda p: p.add(1, ROOT, q=torch.ones(1)) and None),
    "an unknown parent": each(lambda p: p.add(1, ROOT) or p.parents.__setitem__(0, 5)),
    "an untold branch": each(untold_branch),
}


async def all_answers(engine: Any, methods: Sequence[str]) -> None:
    """Every method answers every prompt as Hugging Face does, all at once."""
    pairs = [(method, prompt) for method in methods for prompt in PROMPTS]
    answers = await asyncio.gather(
        *(decode(engine, method, prompt, max_tokens=TOKENS) for method, prompt in pairs)
    )
    for (_, prompt), answer in zip(pairs, answers, strict=True):
        assert answer.error is None
        assert answer.tokens == reference(engine.bundle, prompt, TOKENS)
    assert engine.load().healthy


@pytest.fixture
def load(load_engine: Any, byte_bundle: Bundle) -> Callable[..., TorchEngine]:
    def loader(methods: Sequence[str], **settings: Any) -> TorchEngine:
        engine = load_engine(list(methods), byte_bundle, **settings)
        engine.bundle = byte_bundle
        return engine

    return loader


@pytest.mark.parametrize("propose", WRONG.values(), ids=WRONG)
async def test_a_drafter_whose_drafts_are_wrong(load, propose, monkeypatch):
    engine = load(["naive", "ngram", "draft_verify"])
    monkeypatch.setattr(engine._methods["ngram"].plan.drafter, "propose", propose)
    await all_answers(engine, ["naive", "ngram", "draft_verify"])
    assert engine.load().drafter_failures == {"ngram": IN_A_ROW}  # then it rests
    answer = await decode(engine, "draft_verify", PROMPTS[0], max_tokens=30)
    assert answer.stats.drafted_tokens > 0


@pytest.mark.parametrize("name", ["propose", "commit", "release", "begin", "keep", "unread"])
async def test_a_drafter_that_fails_in_any_call(load, name, monkeypatch):
    """At random, so that it is left in the middle of whatever it did."""
    engine = load([*METHODS, "naive"], prefill_chunk=16)
    dice, broken = random.Random(1), 0

    def unless_unlucky(own: Callable[..., Any], *args: Any) -> Any:
        nonlocal broken
        if dice.random() < 0.7:
            return own(*args)
        broken += 1
        if dice.random() < 0.5:
            own(*args)
        raise ArithmeticError("broken on purpose")

    for drafter in drafters(engine):
        if hasattr(drafter, name):
            own = getattr(drafter, name)
            monkeypatch.setattr(drafter, name, partial(unless_unlucky, own))
    for _ in range(2):  # the second time with the prefixes that were kept
        await all_answers(engine, [*METHODS, "naive"])
    # a drafter that fails for all together and then for each alone has failed once
    assert min(1, broken) <= sum(engine.load().drafter_failures.values()) <= broken


async def test_a_verifier_that_fails_at_drafts(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = load(["eagle3", "naive"])
    verifier = engine._methods["eagle3"].verifier
    own = verifier.verify

    def verify(proposals: Sequence[Proposal], output: Any) -> Any:
        if any(len(proposal) for proposal in proposals):
            raise IndexError("broken on purpose")
        return own(proposals, output)

    monkeypatch.setattr(verifier, "verify", verify)
    await all_answers(engine, ["eagle3", "naive"])
    assert engine.load().drafter_failures["eagle3"] == len(PROMPTS)


@pytest.mark.parametrize("method", ["draft_verify", "eagle3", "medusa"])
async def test_what_a_failure_leaves_does_not_spoil_later_drafts(load, method):
    """A forward that fails once loses the states that it was to read. Later answers, those that
    begin with the kept row too, have as many accepted tokens as if nothing had happened."""
    engine, unbroken = load([method]), load([method])
    [drafter], calls = drafters(engine), itertools.count(1)
    fails(drafter, lambda _: next(calls) == 4)
    prompt = PROMPTS[2]
    await decode(engine, method, prompt, max_tokens=30)
    assert sum(engine.load().drafter_failures.values()) == 1
    for more in ([7], [7, 9]):
        answer = await decode(engine, method, [*prompt, *more], max_tokens=30)
        wanted = await decode(unbroken, method, [*prompt, *more], max_tokens=30)
        assert answer.tokens == wanted.tokens
        assert answer.stats.accepted_tokens == wanted.stats.accepted_tokens


async def test_a_drafter_that_computes_nan_leaves_none_to_later_sequences(load: Any) -> None:
    """Its row is another sequence's afterwards, whose masked slots must hold numbers."""
    engine = load(["draft_verify"])
    [drafter] = drafters(engine)
    with torch.inference_mode():
        drafter.model.embedding[7] = torch.nan
    answer = await decode(engine, "draft_verify", [*range(30), 7], max_tokens=5, temperature=1.0)
    assert answer.error is None
    assert engine.load().drafter_failures["draft_model"] > 0
    assert not drafter.pool.data.isnan().any()


async def test_one_of_several_drafters_fails_and_the_others_draft(load, monkeypatch):
    engine = load(["adaptive", "naive"])
    broken = [d for d in drafters(engine) if type(d).__name__ == "Eagle3"]
    for drafter in broken:
        monkeypatch.setattr(drafter, "propose", half)
    used = dict[str, int]()
    for _ in range(3):
        await all_answers(engine, ["adaptive", "naive"])
        for prompt in PROMPTS:
            answer = await decode(engine, "adaptive", prompt, max_tokens=60)
            for name, stats in answer.stats.by_drafter.items():
                used[name] = used.get(name, 0) + stats.drafted_tokens
    assert used.get("eagle3", 0) == 0
    assert sum(used.values()) > 0


async def test_look_ups_that_fail_leave_the_learned_drafters(load, monkeypatch):
    engine = load(["adaptive", "naive"])
    controller = engine._methods["adaptive"].plan.drafter.controller
    monkeypatch.setattr(controller.look_ups, "look_up", oom)
    await all_answers(engine, ["adaptive", "naive"])
    await decode(engine, "adaptive", PROMPTS[0], max_tokens=60)  # alone it is always looked up
    assert set(engine.load().drafter_failures) == {"suffix"}


@pytest.mark.parametrize(
    "method", ["draft_verify", pytest.param("specinfer", marks=pytest.mark.slow)]
)
async def test_a_dropped_sampled_draft_does_not_bias(load_engine, five, method):
    """Drafts are dropped by what was drawn: those whose last token is even, after all was drawn."""
    spec = get_method(method)

    def loader(methods: Any, bundle: Bundle, **settings: Any) -> TorchEngine:
        engine = load_engine(methods, bundle, **settings)
        drafter = engine._methods[spec.name].plan.drafter
        fails(drafter, lambda drafts: any(p.tokens[-1] % 2 == 0 for p in drafts if len(p)))
        engine._guard.failures.rests = lambda _name: False
        return engine

    assert await answers_p_value(loader, five, spec, {}, 5) > 1e-3


def test_a_drafter_rests_after_several_failures_and_is_tried_again() -> None:
    failures, error = Failures(), ArithmeticError("broken on purpose")
    for _ in range(IN_A_ROW - 1):
        assert not failures.rests("a")
        failures.failed("a", error)
    failures.drafted("a")
    for _ in range(IN_A_ROW):
        assert not failures.rests("a")
        failures.failed("a", error)
    for _ in range(2):
        assert [failures.rests("a") for _ in range(RESTS + 1)] == [True] * RESTS + [False]
        assert not failures.rests("b")
        failures.failed("a", error)  # the one try after the rest
    assert [failures.rests("a") for _ in range(RESTS + 1)][-1] is False
    failures.drafted("a")
    failures.failed("a", error)
    assert not failures.rests("a")
    assert failures.counts == {"a": IN_A_ROW - 1 + IN_A_ROW + 3}


@pytest.mark.parametrize("method", METHODS)
def test_a_drafter_leaves_only_the_sequence_that_it_fails_for(make_rig, byte_bundle, method):
    rig = make_rig(byte_bundle, [method])
    running = [rig.submit(method, prompt, max_tokens=40) for prompt in PROMPTS]
    for _ in range(4):
        rig.round()
    drafter, poisoned = rig.engine._methods[method].plan.drafter, running[1]
    fails(drafter, lambda drafts: any(p.sequence is poisoned for p in drafts))
    rig.round()
    off = [rig.engine._guard.is_off(drafter, sequence) for sequence in running]
    answers = rig.finish(*running)
    assert off == [False, True, False]
    assert sum(rig.engine.load().drafter_failures.values()) == 1
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        assert answer.tokens == reference(byte_bundle, prompt, 40)


@pytest.mark.parametrize("fails_after", [False, True])
@pytest.mark.parametrize("method", ["draft_verify", "eagle3", "medusa"])
def test_a_failure_of_all_together_leaves_no_trace(make_rig, byte_bundle, method, fails_after):
    """Drafters draft again from where they were, also if they have read all that they were to."""
    rig = make_rig(byte_bundle, [method])
    running = [rig.submit(method, prompt, max_tokens=40) for prompt in PROMPTS]
    for _ in range(4):
        rig.round()
    together = iter([True])
    fails(
        rig.engine._methods[method].plan.drafter,
        lambda drafts: len(drafts) > 1 and next(together, False),
        after=fails_after,
    )
    before = [sequence.drafted for sequence in running]
    rig.round()
    assert [sequence.drafted for sequence in running] == before
    rig.round()
    assert all(s.drafted > n for s, n in zip(running, before, strict=True))
    answers = rig.finish(*running)
    assert sum(rig.engine.load().drafter_failures.values()) == 1
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        assert answer.tokens == reference(byte_bundle, prompt, 40)
