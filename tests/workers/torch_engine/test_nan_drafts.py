"""Draft tokens at which the target's logits are NaN.

With int8 the LM head is a copy, so that the NaN is in the embedding alone.
"""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Sequence
from unittest.mock import patch

import pytest
import torch
from decoding import decode
from scipy.stats import chi2_contingency

from workers.torch_engine import sequence

PROMPT = [1, 2, 3, 1, 2, 3, 1]


@pytest.mark.parametrize("right", [0, 3])
async def test_a_predicted_token_does_not_end_an_answer(load_engine, byte_bundle, right):
    """It follows `right` tokens of the answer, which are accepted."""
    engine = load_engine(["naive", "ngram", "adaptive"], byte_bundle, dtype="int8")
    plain = await decode(engine, "naive", PROMPT, max_tokens=20)
    spoilt = next(token for token in range(256) if token not in [*PROMPT, *plain.tokens])
    with torch.inference_mode():
        engine._target.model.embedding[spoilt] = torch.nan
    asked = {"max_tokens": 20, "predicted": [*plain.tokens[:right], spoilt, 5, 6]}
    alone = [await decode(engine, m, PROMPT, **asked) for m in ("ngram", "adaptive")]
    beside = [decode(engine, m, PROMPT, **asked) for m in ("ngram", "naive", "adaptive")]
    for answer in [*alone, *await asyncio.gather(*beside)]:
        assert answer.error is None
        assert answer.tokens == plain.tokens
    assert alone[0].stats.drafted_tokens > 0
    assert alone[0].stats.accepted_tokens >= right
    assert engine.load().healthy


@pytest.mark.slow
async def test_a_drawn_token_does_not_change_the_distribution(load_engine, five):
    """Answers end where the target emits the token, as often as without drafts."""
    spoilt, samples, methods = 3, 1500, ["naive", "draft_verify"]
    room = {"max_batch": 64, "max_waiting": samples, "kv_slots": 64 * 256}
    engine = load_engine(methods, five, dtype="int8", **room)
    with torch.inference_mode():
        engine._target.model.embedding[spoilt] = torch.nan
    generators, counts = map(random.Random, itertools.count()), list[Counter[Sequence[int]]]()
    with patch.object(sequence, "generator", lambda _: next(generators)):
        for method in methods:
            asked = {"max_tokens": 5, "temperature": 1.0}
            jobs = [decode(engine, method, [0, 1, 2], **asked) for _ in range(samples)]
            answers = await asyncio.gather(*jobs)
            counts.append(Counter(tuple(answer.tokens[:3]) for answer in answers))
    plain, drafted = counts
    assert all(spoilt not in tokens[:-1] for tokens in [*plain, *drafted])
    assert sum(n for tokens, n in drafted.items() if spoilt in tokens) > 100
    common = [tokens for tokens in plain | drafted if plain[tokens] + drafted[tokens] >= 16]
    table = [[counted[tokens] for tokens in common] for counted in (plain, drafted)]
    assert chi2_contingency(table).pvalue > 1e-3
