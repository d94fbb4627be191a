"""Drafters with a cache, or that read the target's states, go on where a prefix ends."""

import numpy as np
import pytest
from decoding import Answer, assert_greedy
from rig import Rig, has_seen, words

from workers.bundle import Bundle
from workers.drafting.step_costs import CATCH_UP
from workers.methods import get_method
from workers.torch_engine.models.kv_pool import KvPool

METHODS = ["naive", "ngram", "medusa", "eagle", "eagle2", "eagle3", "draft_verify", "adaptive"]
TOKENS = 24


def turns(rig: Rig, method: str) -> list[tuple[list[int], Answer]]:
    """Three turns of a conversation: the prompts and their answers."""
    asked, prompt = [], words(60, 5)
    for turn in range(3):
        (answer,) = rig.finish(rig.submit(method, prompt, max_tokens=TOKENS))
        asked.append((prompt, answer))
        prompt = [*prompt, *answer.tokens, *words(9, turn)]
    return asked


@pytest.mark.parametrize("method", METHODS)
def test_a_conversation_is_not_read_again(make_rig, byte_bundle, method, monkeypatch) -> None:
    """Nor copied, and what is drafted is what would have been drafted, had it been read."""
    monkeypatch.setattr(KvPool, "copy", lambda *_: pytest.fail("a row was copied"))
    warm = turns(make_rig(byte_bundle, [method]), method)
    cold = turns(make_rig(byte_bundle, [method], prefix_cache=False), method)
    before = 0
    for (prompt, answer), (_, fresh) in zip(warm, cold, strict=True):
        assert_greedy(byte_bundle, prompt, answer.tokens, TOKENS)
        # EAGLE reads its last tokens again, the pairs of which it has not read yet
        assert answer.stats.cached_prompt_tokens >= max(0, before - CATCH_UP - 2)
        assert fresh.stats.cached_prompt_tokens == 0
        if method != "adaptive":
            assert answer.stats.accepted_by_position == fresh.stats.accepted_by_position
        before = len(prompt) + TOKENS


def test_of_two_heads_the_one_that_has_read_more_goes_back(make_rig, byte_bundle, cost):
    """The target reads again from where the other one ends, and its states are those of there. Of
    seventeen tokens, which are kept, one that never drafted has read nothing."""
    cost(np.ones_like)
    settings = {"drafter": {"learned": "eagle,eagle3", "look_ups": False}}
    both = get_method("adaptive").model_copy(update={"settings": settings})
    rig: Rig = make_rig(byte_bundle, [both])
    has_seen(rig.engine, eagle=0, eagle3=5)
    prompt = words(CATCH_UP - 4, 5)
    for tokens in (5, TOKENS):
        (answer,) = rig.finish(rig.submit("adaptive", prompt, max_tokens=tokens))
        assert_greedy(byte_bundle, prompt, answer.tokens, tokens)
        assert "eagle3" in answer.stats.by_drafter
        prompt = [*prompt, *answer.tokens, *words(40, 1)]


def test_what_another_method_has_read_is_read_again_for_eagle(make_rig, byte_bundle):
    rig: Rig = make_rig(byte_bundle, ["naive", "eagle3"])
    prompt = words(60, 5)
    rig.finish(rig.submit("naive", prompt, max_tokens=TOKENS))
    (answer,) = rig.finish(rig.submit("eagle3", prompt, max_tokens=TOKENS))
    assert answer.stats.cached_prompt_tokens == 0
    assert_greedy(byte_bundle, prompt, answer.tokens, TOKENS)


def test_rows_that_are_forgotten_are_free_again(make_rig, byte_bundle: Bundle) -> None:
    """More conversations than rows: the drafter's pool never runs out."""
    rig: Rig = make_rig(byte_bundle, ["eagle3", "draft_verify"])
    for seed in range(3 * rig.pool.rows):
        prompt = words(40, seed)
        method = ["eagle3", "draft_verify"][seed % 2]
        (answer,) = rig.finish(rig.submit(method, prompt, max_tokens=TOKENS))
        assert_greedy(byte_bundle, prompt, answer.tokens, TOKENS)
    for drafter in rig.scheduler._rows._drafters:
        kept = len(drafter._rows._kept)
        assert drafter.pool.free_rows == rig.pool.rows - kept
        assert 0 < kept <= len(rig.scheduler.prefixes._kept)


@pytest.mark.parametrize("method", METHODS)
def test_a_prompt_that_was_left_in_its_middle(make_rig, byte_bundle: Bundle, method: str) -> None:
    """What was read of it is kept, by the drafter as well; nobody has the rest."""
    rig: Rig = make_rig(byte_bundle, [method], prefill_chunk=20)
    prompt = words(100, 5)
    left = rig.submit(method, prompt, max_tokens=TOKENS)
    rig.round()
    rig.round()
    left.stream.cancelled = True
    rig.round()
    assert not any(rig.scheduler.underway())
    (answer,) = rig.finish(rig.submit(method, prompt, max_tokens=TOKENS))
    assert answer.stats.cached_prompt_tokens > 0
    assert_greedy(byte_bundle, prompt, answer.tokens, TOKENS)
