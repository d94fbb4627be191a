"""How long prefills take here."""

import numpy as np
import pytest
from routing_world import METHODS, observe

from router import decaying_sums, predict
from router.learner import Learner
from schemas import Observation, RoutingTable

NAIVE, DRAFT, NGRAM = range(3)
CONSTANT, PER_TOKEN = 0.01, 0.001
PROMPT = 200
WHOLE = CONSTANT + PER_TOKEN * PROMPT


@pytest.fixture
def table(table: RoutingTable) -> RoutingTable:
    line = np.tile([CONSTANT, PER_TOKEN], (len(METHODS), 1))
    return table.model_copy(update={"prefill_seconds": line})


def prefilled(
    table: RoutingTable,
    identity: str,
    used: str,
    slower: float = 1.0,
    cached: int = 0,
    cluster: int = 1,
    **changes: object,
) -> Observation:
    """An answer to a prompt of PROMPT tokens of which so many were cached."""
    seconds = slower * (CONSTANT + PER_TOKEN * (PROMPT - cached))
    answer = observe(table, identity, used, max(0, cluster)).model_copy(update={"cluster": cluster})
    read = {
        "prompt_tokens": PROMPT,
        "cached_prompt_tokens": cached,
        "context_length": PROMPT + 61,
        "first_token_seconds": seconds,
    }
    return answer.model_copy(update={"stats": answer.stats.model_copy(update=read | changes)})


def taught(table: RoutingTable, used: str, n: int, **fields: object) -> Learner:
    learner = Learner(table)
    learner.observe(prefilled(table, f"{used}{i}", used, **fields) for i in range(n))
    return learner


def test_a_method_whose_prefills_are_twice_as_slow_is_predicted_so(table: RoutingTable) -> None:
    """And the others, which nobody has tried, half of it: it may be the machine."""
    after = taught(table, "ngram", 30, slower=2.0).table
    predicted = [predict.prefill_seconds(after, m, PROMPT) / WHOLE for m in range(3)]
    assert predicted == pytest.approx([2.0**0.5, 2.0**0.5, 2.0], rel=0.05)
    np.testing.assert_allclose(after.live.step_ratio, 1.0, rtol=0.01)


@pytest.mark.parametrize(
    "says_nothing",
    [
        {"mean_batch": 4.0},
        {"output_tokens": 1, "target_steps": 1},
        {"first_token_seconds": 0.0},
        {"queue_seconds": 5.0},
        {"cached": PROMPT - 1},
    ],
)
def test_a_prefill_that_says_nothing_of_the_method_does_not_count(table, says_nothing):
    """On a busy replica, on one of which nothing is known, without a time, or of a token alone."""
    after = taught(table, "ngram", 30, slower=3.0, **says_nothing).table
    assert after.version > table.version
    np.testing.assert_array_equal(after.live.prefill_ratio, 1.0)


@pytest.mark.parametrize(
    "answer",
    [
        {"slower": 2.0, "cached": 150},
        {"queue_seconds": 7.0, "first_token_seconds": 7.0 + 2.0 * WHOLE},
    ],
)
def test_only_the_reading_of_the_tokens_that_were_not_cached_counts(table, answer):
    """Neither the wait for a place nor what the cache held."""
    after = taught(table, "ngram", 30, **answer).table
    assert after.live.prefill_ratio[NGRAM] == pytest.approx(2.0, rel=0.05)


def test_what_other_prompts_found_in_the_cache_does_not_shorten_a_prompts_reading(table):
    """Else a client that repeats its prompts would draw everybody's to a method."""
    after = taught(table, "ngram", 30, cached=160).table
    whole, held = (predict.prefill_seconds(after, NGRAM, 2000, held) for held in (0, 1500))
    assert whole == pytest.approx(CONSTANT + 2000 * PER_TOKEN, rel=0.01)
    assert whole - held == pytest.approx(1500 * PER_TOKEN, rel=0.01)


def test_a_method_that_nobody_is_sent_to_drifts_back(table, monkeypatch):
    monkeypatch.setattr(decaying_sums, "HALF_LIFE", 10.0)
    learner = Learner(table)
    learner.observe(prefilled(table, f"n{i}", "ngram", 2.0, cached=150) for i in range(20))
    before = learner.table
    learner.observe(prefilled(table, f"d{i}", "draft") for i in range(200))
    after = learner.table
    assert 1.0 < after.live.prefill_ratio[NGRAM] < 0.85 * before.live.prefill_ratio[NGRAM]
