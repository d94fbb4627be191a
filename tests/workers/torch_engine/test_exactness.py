"""At temperature 0 in float32 every lossless method gives Hugging Face's answers."""

import asyncio
import random
from typing import Any

import numpy as np
import pytest
from decoding import LOSSLESS, Answer, assert_greedy, decode, request
from rig import Rig

from workers.bundle import Bundle
from workers.torch_engine.sequence import DecodeSequence


def prompts(vocab: int, count: int, seed: int = 0) -> list[list[int]]:
    """Return prompts of 1 to about 90 random tokens in which a piece repeats."""
    rng = random.Random(seed)
    made = [[rng.randrange(vocab)]]
    while len(made) < count:
        piece = [rng.randrange(vocab) for _ in range(rng.randrange(2, 30))]
        made.append(piece * rng.randrange(1, 4))
    return made


async def test_drafts_are_accepted_and_counted(load_engine, byte_bundle: Bundle, cost) -> None:
    cost(np.ones_like)  # every draft pays, on any machine
    methods = ["naive", "draft_verify", "ngram", "suffix", "adaptive"]
    engine = load_engine(methods, byte_bundle)
    prompt = list(range(10, 20)) * 3
    for method in methods:
        # The answers are equal. In one scope, later methods would look them up.
        answer = await decode(engine, method, prompt, max_tokens=80, scope=method)
        stats = answer.stats
        assert stats.batch_by_method == {method: 1.0}
        assert stats.output_tokens == len(answer.tokens) == len(answer.drafted)
        assert sum(answer.drafted) == stats.accepted_tokens == sum(stats.accepted_by_position)
        assert stats.drafted_tokens == sum(stats.drafted_by_position)
        assert stats.target_steps + stats.accepted_tokens == stats.output_tokens
        if method == "naive":
            assert stats.output_tokens / stats.target_steps == 1.0
        else:
            assert 0 < stats.accepted_tokens < stats.drafted_tokens
    counted = stats.by_drafter.values()  # adaptive's
    assert sum(one.steps for one in counted) == stats.target_steps - 1  # the prefill drafts nothing
    assert sum(one.drafted_tokens for one in counted) == stats.drafted_tokens
    assert sum(one.accepted_tokens for one in counted) == stats.accepted_tokens


@pytest.mark.parametrize("most", [0, 1, 2])
async def test_a_request_bounds_its_drafts(load_engine, six: Bundle, most: int) -> None:
    engine = load_engine(LOSSLESS, six)
    asked = [
        request(method, [5, 4, 3] * 5, scope=method, max_tokens=30).model_copy(
            update={"max_draft_tokens": most}
        )
        for method in LOSSLESS
    ]
    plain = await decode(engine, "naive", [5, 4, 3] * 5, max_tokens=30)
    for one in asked:
        answer = Answer()
        async for chunk in engine.generate(one):
            answer.add(chunk)
        assert answer.tokens == plain.tokens
        assert answer.stats.drafted_tokens <= most * answer.stats.target_steps


async def test_bfloat16_decodes(load_engine, six: Bundle) -> None:
    engine = load_engine(LOSSLESS, six, dtype="bfloat16")
    answers = [decode(engine, m, [5, 4, 3], max_tokens=8) for m in LOSSLESS]
    assert {len(answer.tokens) for answer in await asyncio.gather(*answers)} == {8}


ROWS, TOKENS = 5, 72
ASKED = prompts(7, 5, seed=9)
DRAFTED = ["draft_verify", "ngram", "specinfer", "medusa", "eagle", "eagle2", "eagle3"]


def drafted(sequence: DecodeSequence) -> int:
    """Return the number of tokens drafted for a sequence."""
    return sequence.drafted


@pytest.mark.parametrize("name", DRAFTED)
def test_batches_that_grow_and_shrink(seven: Bundle, name: str) -> None:
    """Between rounds of drafting, decode plainly for more tokens than a drafter reads at once."""
    rig = Rig(seven, [name, "naive"], max_batch=ROWS)
    stop: Any = rig.engine._methods[name].plan.stop

    def submit(method: str, which: int, tokens: int) -> tuple[DecodeSequence, int, int]:
        return rig.submit(method, ASKED[which], max_tokens=tokens), which, tokens

    asked = [submit(name, 0, TOKENS)]
    first = asked[0][0]
    for _ in range(5):
        rig.round()
    alone = drafted(first)
    stop.limit = 0
    # four more, one of another method: everybody decodes plainly
    asked += [submit(m, i + 1, 26 + i) for i, m in enumerate([name, "naive", name, name])]
    while any(not sequence.output_tokens for sequence, _, _ in asked):
        rig.round()
    crowded = drafted(first)
    for _ in range(20):
        rig.round()
    assert drafted(first) == crowded
    stop.limit = 3
    asked += [submit(name, 1, 20), submit(name, 2, 30)]
    answers: list[Answer] = rig.finish(*(sequence for sequence, _, _ in asked))
    rig.close()
    assert alone > 0 or name == "ngram"
    assert drafted(first) > crowded
    for (_, which, tokens), answer in zip(asked, answers, strict=True):
        assert_greedy(seven, ASKED[which], answer.tokens, tokens)
    assert max(a.stats.accepted_tokens for a in answers if a.stats is not None) > 0
