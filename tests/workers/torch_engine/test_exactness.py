"""At temperature 0 in float32 every lossless method gives Hugging Face's answers."""

import asyncio
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from decoding import LOSSLESS, Answer, assert_greedy, decode, method_of, request
from hypothesis import given, settings
from hypothesis import strategies as st
from rig import Rig
from test_trees import shapes

from schemas import MethodSpec
from workers.bundle import Bundle
from workers.methods import get_method
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.trees.static import format_path


def prompts(vocab: int, count: int, seed: int = 0) -> list[list[int]]:
    """Return prompts of 1 to about 90 random tokens in which a piece repeats."""
    rng = random.Random(seed)
    made = [[rng.randrange(vocab)]]
    while len(made) < count:
        piece = [rng.randrange(vocab) for _ in range(rng.randrange(2, 30))]
        made.append(piece * rng.randrange(1, 4))
    return made


async def test_mixed_batches(load_engine, six: Bundle) -> None:
    """Methods share forward passes; some requests are cancelled."""
    methods = [*LOSSLESS, "medusa_typical", "fuzzy"]
    engine = load_engine(methods, six, prefill_chunk=16, max_waiting=64)
    asked = [(m, p) for p in prompts(6, 4) for m in methods]
    rng = random.Random(1)
    lengths = [rng.randrange(2, 60) for _ in asked]

    async def one(method: str, prompt: list[int], tokens: int) -> Answer:
        cut = 1 + tokens // 4 if method == "fuzzy" else 0
        return await decode(engine, method, prompt, max_tokens=tokens, stop_after=cut)

    answers = await asyncio.gather(
        *(one(*pair, tokens) for pair, tokens in zip(asked, lengths, strict=True))
    )
    accepted, batches, mixed = Counter[str](), [], 0
    for (method, prompt), tokens, answer in zip(asked, lengths, answers, strict=True):
        if method == "fuzzy":
            continue
        assert_greedy(six, prompt, answer.tokens, tokens)
        accepted[method] += answer.stats.accepted_tokens
        batches.append(answer.stats.mean_batch)
        by_method = answer.stats.batch_by_method
        assert sum(by_method.values()) == pytest.approx(answer.stats.mean_batch)
        mixed += len(by_method) > 1
    assert all(accepted[m] > 0 for m in ("draft_verify", "medusa", "eagle", "eagle2", "eagle3"))
    assert max(batches) > 3
    assert mixed > 0
    assert engine.load().running == 0


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
        assert len(answer.stats.drafted_by_position) <= most


async def test_bfloat16_decodes(load_engine, six: Bundle) -> None:
    engine = load_engine(LOSSLESS, six, dtype="bfloat16")
    answers = [decode(engine, m, [5, 4, 3], max_tokens=8) for m in LOSSLESS]
    assert {len(answer.tokens) for answer in await asyncio.gather(*answers)} == {8}


def method(name: str, tree: str, verifier: str, levels: int, **wishes: Any) -> MethodSpec:
    settings = {"tree": wishes, "stop": {"gamma": levels}}
    return method_of(name, "draft_model", tree, verifier, **settings)


@settings(max_examples=10, deadline=None)
@given(shapes(), st.integers(1, 4), st.integers(0, 8), st.integers(1, 5))
def test_trees_of_any_shape(seven, shape, k, more, levels):
    """Decode five sequences in one batch; rows move when a sequence ends."""
    asked = prompts(7, 5, seed=4)
    paths = " ".join(map(format_path, shape))
    methods = [
        method("fixed_shape", "static", "multi_step", levels, paths=paths, sample=True),
        method("dynamic", "eagle2", "one_hot", levels, k=k, nodes=k + more),
        method("typically", "static", "typical", levels, paths=paths),
    ]
    rig = Rig(seven, [*methods, "draft_verify", "naive"])
    names = ["fixed_shape", "dynamic", "draft_verify", "typically", "naive"]
    counts = [30 - 4 * index for index in range(len(names))]
    running = [
        rig.submit(name, prompt, max_tokens=count)
        for name, prompt, count in zip(names, asked, counts, strict=True)
    ]
    answers = rig.finish(*running)
    rig.close()
    for prompt, answer, count in zip(asked, answers, counts, strict=True):
        assert_greedy(seven, prompt, answer.tokens, count)


ROWS, TOKENS = 5, 72
ASKED = prompts(7, 5, seed=9)
DRAFTED = ["draft_verify", "ngram", "specinfer", "medusa", "eagle", "eagle2", "eagle3"]
SCHEDULE: dict[str, Any] = {"batches": (1, 2, 4), "gammas": (3, 1, 0)}


def scheduled(name: str, **schedule: Any) -> MethodSpec:
    spec = get_method(name)
    settings = spec.settings | {"stop": schedule}
    return spec.model_copy(update={"stop": "batch_schedule", "settings": settings})


def drafted(sequence: DecodeSequence) -> int:
    """Return the number of tokens drafted for a sequence."""
    return sum(sequence.tally.drafted)


@pytest.mark.parametrize("name", DRAFTED)
def test_batches_that_grow_and_shrink(seven: Bundle, name: str) -> None:
    """Between rounds of drafting, decode plainly for more tokens than a drafter reads at once."""
    rig = Rig(seven, [scheduled(name, **SCHEDULE), "naive"], max_batch=ROWS)

    def submit(method: str, which: int, tokens: int) -> tuple[DecodeSequence, int, int]:
        return rig.submit(method, ASKED[which], max_tokens=tokens), which, tokens

    asked = [submit(name, 0, TOKENS)]
    first = asked[0][0]
    for _ in range(5):
        rig.round()
    alone = drafted(first)
    # four more, one of another method: everybody decodes plainly
    asked += [submit(m, i + 1, 26 + i) for i, m in enumerate([name, "naive", name, name])]
    while any(not sequence.output_tokens for sequence, _, _ in asked):
        rig.round()
    crowded = drafted(first)
    for _ in range(20):
        rig.round()
    assert drafted(first) == crowded
    asked += [submit(name, 1, 20), submit(name, 2, 30)]
    answers: list[Answer] = rig.finish(*(sequence for sequence, _, _ in asked))
    rig.close()
    assert alone > 0 or name == "ngram"
    assert drafted(first) > crowded
    for (_, which, tokens), answer in zip(asked, answers, strict=True):
        assert_greedy(seven, ASKED[which], answer.tokens, tokens)
    assert max(a.stats.accepted_tokens for a in answers if a.stats is not None) > 0


def test_the_batch_says_how_much_is_drafted(seven: Bundle) -> None:
    """The schedule counts every sequence that decodes in the step."""
    rig = Rig(seven, [scheduled("draft_verify", **SCHEDULE), "naive"], max_batch=ROWS)
    first = rig.submit("draft_verify", ASKED[1], max_tokens=120)
    rig.round()
    seen = []
    for others in range(4):
        before = drafted(first)
        rig.round()
        rig.round()
        seen.append((drafted(first) - before) / 2)
        other = rig.submit("naive", ASKED[others], max_tokens=60)
        while not other.output_tokens:
            rig.round()
    rig.close()
    assert seen == [3, 1, 1, 0]
