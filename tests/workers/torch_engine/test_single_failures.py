"""Drafters that fail for one sequence of a batch, or only for all of them together."""

from collections.abc import Sequence
from typing import Any

import pytest
from decoding import reference
from test_failing_drafters import PROMPTS

from workers.bundle import Bundle
from workers.torch_engine.interfaces import Proposal


@pytest.mark.parametrize("method", ["ngram", "draft_verify", "eagle3", "medusa", "adaptive"])
def test_a_drafter_leaves_only_the_sequence_that_it_fails_for(
    make_rig: Any, byte_bundle: Bundle, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig(byte_bundle, [method])
    running = [rig.submit(method, prompt, max_tokens=40) for prompt in PROMPTS]
    for _ in range(4):
        rig.round()
    drafter, poisoned = rig.engine._methods[method].plan.drafter, running[1]
    own = drafter.propose

    def propose(proposals: Sequence[Proposal]) -> None:
        own(proposals)
        if any(p.sequence is poisoned for p in proposals):
            raise ArithmeticError("broken on purpose")

    monkeypatch.setattr(drafter, "propose", propose)
    rig.round()
    off = [rig.engine._guard.is_off(drafter, sequence) for sequence in running]
    answers = rig.finish(*running)
    assert off == [False, True, False]
    assert sum(rig.engine.load().drafter_failures.values()) == 1
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        assert answer.tokens == reference(byte_bundle, prompt, 40)


@pytest.mark.parametrize("fails_after", [False, True])
@pytest.mark.parametrize("method", ["draft_verify", "eagle3", "medusa"])
def test_a_failure_of_all_together_leaves_no_trace(
    make_rig: Any,
    byte_bundle: Bundle,
    method: str,
    fails_after: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Drafters draft again from where they were, also if they have read all that they were to."""
    rig = make_rig(byte_bundle, [method])
    running = [rig.submit(method, prompt, max_tokens=40) for prompt in PROMPTS]
    for _ in range(4):
        rig.round()
    drafter = rig.engine._methods[method].plan.drafter
    own, failed = drafter.propose, False

    def propose(proposals: Sequence[Proposal]) -> None:
        nonlocal failed
        once = len(proposals) > 1 and not failed
        if fails_after or not once:
            own(proposals)
        if once:
            failed = True
            raise ArithmeticError("broken on purpose")

    monkeypatch.setattr(drafter, "propose", propose)
    before = [sum(sequence.tally.drafted) for sequence in running]
    rig.round()
    assert failed
    assert [sum(sequence.tally.drafted) for sequence in running] == before
    rig.round()
    assert all(sum(s.tally.drafted) > n for s, n in zip(running, before, strict=True))
    answers = rig.finish(*running)
    assert sum(rig.engine.load().drafter_failures.values()) == 1
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        assert answer.tokens == reference(byte_bundle, prompt, 40)
