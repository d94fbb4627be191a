"""Answers with a prediction: the same as without, in fewer steps where it is right."""

import asyncio

import pytest
from decoding import decode

COPYING = ["ngram", "suffix", "adaptive"]
PROMPT = list(range(60, 90))


@pytest.mark.parametrize("wishes", [{}, {"temperature": 1.0, "seed": 3}])
async def test_a_prediction_changes_no_answer(load_engine, tiny_bundle, cost, wishes):
    cost(lambda rows: 1.0 + 0.001 * rows)
    methods = [*COPYING, "naive", "eagle3"]
    engine = load_engine(methods, tiny_bundle, max_context=512, kv_slots=512 * 20)
    asked = {"max_tokens": 120, "ignore_eos": True, **wishes}
    plain = await decode(engine, "naive", PROMPT, **asked)
    right = plain.tokens
    edited = [*right[:30], 5, 6, 7, *right[33:60], *right[66:]]
    predictions = [right, edited, list(range(500, 560)), right[:1]]
    answers = await asyncio.gather(
        *(
            decode(engine, method, PROMPT, predicted=predicted, **asked)
            for predicted in predictions
            for method in methods
        )
    )
    assert all(answer.tokens == right for answer in answers)
    for method, answer in zip(methods, answers, strict=False):
        copied = answer.stats.accepted_prediction_tokens
        assert copied > 60 if method in COPYING else copied == 0
    stats = answers[0].stats
    assert stats.drafted_prediction_tokens == stats.accepted_prediction_tokens
    assert len(stats.drafted_by_position) == 48, "more than the method drafts by itself"
    assert stats.target_steps < 9
    asked |= {"answered": right[:20], "predicted": right, "max_tokens": 80}
    begun = await decode(engine, "ngram", PROMPT, **asked)
    assert begun.tokens == right[20:80]
    assert begun.stats.target_steps < 5, "it is followed from where it goes on"
