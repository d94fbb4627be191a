"""The suffix drafter in the engine: what it draws on, and what it learns of."""

import random

import numpy as np
import pytest
from decoding import assert_greedy, decode

from schemas import MethodSpec
from workers.bundle import Bundle
from workers.methods import get_method

PROMPT = random.Random(3).sample(range(256), 12)
TOKENS = 48


@pytest.fixture(autouse=True)
def free_rows(cost) -> None:
    """Whatever is foretold pays, on any machine."""
    cost(np.ones_like)


def suffix(**settings: float) -> MethodSpec:
    spec = get_method("suffix")
    merged = {**spec.settings, "drafter": {**spec.settings["drafter"], **settings}}
    return spec.model_copy(update={"settings": merged})


async def mean_accepted(engine, bundle: Bundle, scope: str = "") -> float:
    """Of one answer, which is plain decoding's: accepted tokens a step."""
    answer = await decode(engine, "suffix", PROMPT, scope=scope, max_tokens=TOKENS)
    assert_greedy(bundle, PROMPT, answer.tokens, TOKENS)
    return answer.stats.accepted_tokens / answer.stats.target_steps


async def test_a_copy_is_drafted_further_the_longer_it_goes_on(
    load_engine, byte_bundle: Bundle
) -> None:
    engine = load_engine([suffix()], byte_bundle)
    answer = await decode(engine, "suffix", list(range(60)) * 3, max_tokens=20)
    assert len(answer.stats.drafted_by_position) >= 8


async def test_where_every_row_costs_a_step_nothing_is_drafted(
    load_engine, byte_bundle: Bundle, cost
) -> None:
    cost(lambda rows: rows)
    engine = load_engine([suffix()], byte_bundle)
    answer = await decode(engine, "suffix", list(range(60)) * 3, max_tokens=20)
    assert answer.stats.drafted_tokens == 0


async def test_an_answer_that_was_given_before_is_known(load_engine, byte_bundle: Bundle) -> None:
    engine = load_engine([suffix()], byte_bundle)
    first = await mean_accepted(engine, byte_bundle)
    again = await mean_accepted(engine, byte_bundle)
    assert again > first + 2.0
    assert await mean_accepted(engine, byte_bundle, "another") == pytest.approx(first, abs=0.5)


async def test_nothing_is_kept_where_nothing_may_be(load_engine, byte_bundle: Bundle) -> None:
    engine = load_engine([suffix(past_tokens=0)], byte_bundle)
    first = await mean_accepted(engine, byte_bundle)
    assert await mean_accepted(engine, byte_bundle) == pytest.approx(first, abs=0.5)


async def test_a_long_prompt_is_indexed_in_parts(load_engine, byte_bundle: Bundle) -> None:
    engine = load_engine([suffix()], byte_bundle, prefill_chunk=16)
    prompt = [random.Random(1).randrange(256) for _ in range(100)] * 2
    answer = await decode(engine, "suffix", prompt, max_tokens=20)
    assert_greedy(byte_bundle, prompt, answer.tokens, 20)


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"least": 0.0}, "least must be between 0 and 1"), ({"past_tokens": -1}, "must not be neg")],
)
def test_settings_that_make_no_sense_are_refused(
    load_engine, byte_bundle: Bundle, settings: dict[str, float], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        load_engine([suffix(**settings)], byte_bundle)
