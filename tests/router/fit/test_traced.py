"""A profile's rows from traced acceptance and measured seconds."""

import pytest

from router.fit.traced import TracedAnswer, costs_of, traced_row
from schemas.profile import ProfileRow, StepRow


def decoded(method, prompt_tokens, prefill):
    return ProfileRow(
        prompt_id="p",
        method=method,
        prompt_tokens=prompt_tokens,
        output_tokens=9,
        target_steps=9,
        seconds=1.0,
        prefill_seconds=prefill,
        decode_seconds=0.5,
    )


ROWS = [decoded("eagle", 100, 0.3), decoded("eagle", 300, 0.5)]
STEPS = [
    StepRow(method="eagle", batch=1, context=100, seconds=0.01, count=9),
    StepRow(method="eagle", batch=1, context=300, seconds=0.03, count=9),
    StepRow(method="eagle", batch=4, context=100, seconds=0.9, count=9),
]


def test_seconds_are_the_steps_that_the_trace_expects():
    costs = costs_of(ROWS, STEPS)
    traced = TracedAnswer(
        prompt_id="q",
        method="eagle",
        temperature=0.8,
        prompt_tokens=197,
        answer=[7] * 6,
        kept=[(0.5,), (), (0.0,), (), ()],
        looping=False,
    )
    row = traced_row(costs, traced)
    assert row.target_steps == 1.0 + 4.5
    assert row.output_tokens == 6
    assert row.prefill_seconds == pytest.approx(0.2 + 0.001 * 197)
    assert row.decode_seconds == pytest.approx(4.5 * 0.02)
    assert row.seconds == pytest.approx(row.prefill_seconds + row.decode_seconds)
    assert (row.prompt_id, row.method, row.temperature) == ("q", "eagle", 0.8)


def test_a_prefills_line_never_falls_below_zero():
    steep = [decoded("eagle", 100, 0.0), decoded("eagle", 300, 0.5)]
    cost = costs_of(steep, STEPS)["eagle"]
    assert cost.first == 0.0
    assert 0.0 < cost.per_token < 0.0025
    falling = [decoded("eagle", 100, 0.5), decoded("eagle", 300, 0.3)]
    cost = costs_of(falling, STEPS)["eagle"]
    assert (cost.per_token, cost.prefill(10)) == (0.0, pytest.approx(0.4))


def test_a_method_without_steps_is_named():
    with pytest.raises(ValueError, match="medusa has no step time at batch 1"):
        costs_of([decoded("medusa", 10, 0.1)], STEPS)
