"""A target whose matrices are integers: another model, to which every method is lossless."""

import asyncio

import pytest
import torch
from decoding import LOSSLESS, decode

from workers.torch_engine.models.kernels import block_product
from workers.torch_engine.models.layout import Span
from workers.torch_engine.models.model import load_target

pytestmark = pytest.mark.skipif(not block_product.is_built(), reason=block_product.NOT_BUILT)
PROMPTS = [[*range(20, 44), *range(20, 40)], list(range(60, 71)), [5, 6, 7, 5, 6, 7, 5, 6]]


async def test_every_method_says_what_plain_decoding_in_int8_says(load_engine, tiny_bundle):
    """Alone and in a batch: a row's integers do not depend on the rows beside it."""
    engine = load_engine(LOSSLESS, tiny_bundle, dtype="int8")
    alone = [await decode(engine, "naive", p, max_tokens=20) for p in PROMPTS]
    mixed = await asyncio.gather(
        *(decode(engine, m, p, max_tokens=20) for p in PROMPTS for m in LOSSLESS)
    )
    for index, answer in enumerate(mixed):
        assert answer.tokens == alone[index // len(LOSSLESS)].tokens
    assert sum(answer.stats.accepted_tokens for answer in mixed) > 0


def test_its_logits_are_near_those_of_the_weights(tiny_bundle):
    folder, cpu = tiny_bundle.part("target"), torch.device("cpu")
    logits = []
    for model in (load_target(folder, dtype, cpu) for dtype in ("float32", "int8")):
        pool = model.make_pool(1, 64)
        with torch.inference_mode():
            layout = model.lay_out([Span(pool.acquire(), PROMPTS[0])], pool)
            logits.append(model.forward(layout, pool)[0])
    exact, rounded = logits
    assert not torch.equal(exact, rounded)
    similar = torch.cosine_similarity(exact, rounded, dim=-1)
    assert similar.min() > 0.98
