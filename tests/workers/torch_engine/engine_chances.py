"""How likely an engine's sampled first tokens are under exact enumeration of the target."""

import asyncio
import itertools
import random
from collections import Counter
from typing import Any
from unittest.mock import patch

import torch
from decoding import decode, hugging_face
from sampling_reference import chances, p_value

from schemas import SamplingParams
from workers.bundle import Bundle
from workers.torch_engine import sequence

TOKENS = 3
SAMPLES = 800
PROMPT = [0, 1, 0, 1, 2]


async def answers_p_value(
    load_engine: Any,
    bundle: Bundle,
    method: Any,
    wishes: dict[str, Any],
    vocab: int,
) -> float:
    """Of the first tokens of many answers of a whole engine, at temperature 1 unless `wishes`
    says otherwise. The engine's generators are the same each time."""
    engine = load_engine([method], bundle, max_batch=64, max_waiting=SAMPLES, kv_slots=64 * 256)
    options = {"temperature": 1.0} | wishes

    generators = map(random.Random, itertools.count())

    async def tokens() -> tuple[int, ...]:
        asked = {"max_tokens": TOKENS + 2, **options}
        return tuple((await decode(engine, method.name, PROMPT, **asked)).tokens[:TOKENS])

    with patch.object(sequence, "generator", lambda _: next(generators)):
        answers = Counter(await asyncio.gather(*(tokens() for _ in range(SAMPLES))))
    model = hugging_face(bundle.part("target"))

    def logits(context: list[int]) -> torch.Tensor:
        with torch.inference_mode():
            return model(torch.tensor([context])).logits[0, -1]

    sampling = SamplingParams.model_validate(options)
    return p_value(answers, chances(logits, PROMPT, TOKENS, vocab, sampling))
