"""Draft tokens at which the target's logits are NaN."""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pytest
import torch
from decoding import SMALL, decode
from scipy.stats import chi2_contingency

from schemas import EngineConfig
from workers.bundle import Bundle
from workers.loader import load_engine
from workers.torch_engine import sequence

# With int8 the LM head is a copy, so that the NaN is in the embedding alone.
CONFIG = EngineConfig.model_validate(SMALL | {"dtype": "int8"})
PROMPT = [1, 2, 3, 1, 2, 3, 1]


@pytest.mark.parametrize("right", [0, 3])
def test_a_predicted_token_does_not_end_an_answer(byte_bundle: Bundle, right: int) -> None:
    """It follows `right` tokens of the answer, which are accepted."""

    async def answers() -> tuple[Any, list[Any], bool]:
        engine: Any = load_engine(["naive", "ngram", "adaptive"], byte_bundle, CONFIG)
        try:
            plain = await decode(engine, "naive", PROMPT, max_tokens=20)
            spoilt = next(token for token in range(256) if token not in [*PROMPT, *plain.tokens])
            with torch.inference_mode():
                engine._target.model.embedding[spoilt] = torch.nan
            predicted = [*plain.tokens[:right], spoilt, 5, 6]
            asked = {"max_tokens": 20, "predicted": predicted}
            alone = [await decode(engine, m, PROMPT, **asked) for m in ("ngram", "adaptive")]
            beside = [decode(engine, m, PROMPT, **asked) for m in ("ngram", "naive", "adaptive")]
            together = await asyncio.gather(*beside)
            return plain, [*alone, *together], engine.load().healthy
        finally:
            engine.close()

    plain, predicted, healthy = asyncio.run(answers())
    for answer in predicted:
        assert answer.error is None
        assert answer.tokens == plain.tokens
    assert predicted[0].stats.drafted_tokens > 0
    assert predicted[0].stats.accepted_tokens >= right
    assert healthy


@pytest.mark.slow
def test_a_drawn_token_does_not_change_the_distribution(five: Bundle) -> None:
    """Answers end where the target emits the token, as often as without drafts."""
    spoilt, samples = 3, 1500

    async def counts() -> list[Counter[Sequence[int]]]:
        settings = {"max_batch": 64, "max_waiting": samples, "kv_slots": 64 * 256}
        config = CONFIG.model_copy(update=settings)
        engine: Any = load_engine(["naive", "draft_verify"], five, config)
        with torch.inference_mode():
            engine._target.model.embedding[spoilt] = torch.nan
        generators = map(random.Random, itertools.count())
        try:
            with patch.object(sequence, "generator", lambda _: next(generators)):
                return [
                    Counter(
                        tuple(answer.tokens[:3])
                        for answer in await asyncio.gather(
                            *(
                                decode(engine, method, [0, 1, 2], max_tokens=5, temperature=1.0)
                                for _ in range(samples)
                            )
                        )
                    )
                    for method in ("naive", "draft_verify")
                ]
        finally:
            engine.close()

    plain, drafted = asyncio.run(counts())
    assert all(spoilt not in tokens[:-1] for tokens in [*plain, *drafted])
    assert sum(n for tokens, n in drafted.items() if spoilt in tokens) > 100
    common = [tokens for tokens in plain | drafted if plain[tokens] + drafted[tokens] >= 16]
    table = [[counted[tokens] for tokens in common] for counted in (plain, drafted)]
    assert chi2_contingency(table).pvalue > 1e-3
