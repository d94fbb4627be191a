"""What an engine holds is bounded, little of it is copied, and no memory ends no other request."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import torch
from decoding import assert_greedy, decode, reference, until
from rig import Rig, has_seen, words

from workers.bundle import Bundle
from workers.torch_engine.drafters.feature_drafter import FeatureDrafter
from workers.torch_engine.models import kv_pool, prefix_cache
from workers.torch_engine.models.heads.feature_head import FeatureHead
from workers.torch_engine.models.kv_pool import KvPool

METHODS = ["naive", "ngram", "medusa", "eagle3", "draft_verify", "adaptive"]
CHUNK, TOKENS = 16, 20


def test_states_that_nobody_reads_are_bounded(make_rig, byte_bundle: Bundle, cost) -> None:
    """The head never drafts, and has read all but the last chunk in every round."""
    cost(lambda rows: rows)
    rig: Rig = make_rig(byte_bundle, ["adaptive"], prefill_chunk=CHUNK)
    has_seen(rig.engine, medusa=0, eagle3=0)
    [head] = [d for d in rig.scheduler._rows._drafters if isinstance(d, FeatureDrafter)]
    prompts = [words(length, length) for length in (5, 30, 100)]
    asked = [rig.submit("adaptive", prompt, max_tokens=100) for prompt in prompts]
    held = list[int]()
    while asked[-1].output_tokens < 80:
        rig.round()
        states = [head._states[s.id] for s in asked if s.id in head._states]
        held += [sum(map(len, state.unread)) for state in states]
    assert max(held) <= 2 * CHUNK
    assert head.pool.data[:, head._rows[asked[-1].lease].row].any()
    for prompt, sequence, answer in zip(prompts, asked, rig.finish(*asked), strict=True):
        assert_greedy(byte_bundle, prompt, answer.tokens, 100)
        assert not head.unread(sequence)
        assert answer.stats.by_drafter.keys() == {"none"}


def test_rows_move_while_their_sequences_decode(make_rig, byte_bundle, monkeypatch):
    """The second and the fourth of five go on when the others have ended, and end next to each
    other; a few tokens at a time are moved, of the target and of the drafters."""
    monkeypatch.setattr(kv_pool, "BLOCK", 8)
    methods = ["naive", "eagle3", "naive", "draft_verify", "naive"]
    rig: Rig = make_rig(byte_bundle, sorted({*methods}), max_batch=5)
    prompts, lengths = [words(30 + i, i) for i in range(5)], [5, 70, 5, 70, 5]
    asked = [
        rig.submit(method, prompt, max_tokens=length)
        for method, prompt, length in zip(methods, prompts, lengths, strict=True)
    ]
    apart = list[int]()
    while not apart or sum(map(len, rig.scheduler.underway())) > 1:
        rig.round()
        if asked[1].admitted and asked[3].admitted:
            apart.append(abs(asked[1].lease.row - asked[3].lease.row))
    assert apart[-1] == 1 < max(apart)
    for prompt, length, answer in zip(prompts, lengths, rig.finish(*asked), strict=True):
        assert_greedy(byte_bundle, prompt, answer.tokens, length)


def out_of_memory(*_: object) -> Any:
    raise torch.OutOfMemoryError("CUDA out of memory on purpose")


def no_memory(*_: object) -> Any:
    raise MemoryError("on purpose")


def no_catching_up(patch: pytest.MonkeyPatch) -> None:
    own = FeatureHead.forward

    def forward(self: FeatureHead, features: torch.Tensor, *rest: Any) -> Any:
        return own(self, features, *rest) if len(features) < CHUNK else out_of_memory()

    patch.setattr(FeatureHead, "forward", forward)


WITHOUT: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a copy": lambda patch: patch.setattr(KvPool, "copy", out_of_memory),
    "a kept row": lambda patch: patch.setattr(prefix_cache, "prefix_hashes", no_memory),
    "catching up": no_catching_up,
}


@pytest.mark.parametrize("without", WITHOUT.values(), ids=WITHOUT)
async def test_no_memory_ends_no_request(load_engine, byte_bundle, without, monkeypatch):
    """Prompts that begin alike and next turns go on without a prefix, or without the drafter."""
    engine = load_engine(METHODS, byte_bundle, prefill_chunk=CHUNK)
    without(monkeypatch)
    prompts = {method: [*words(40), i] for i, method in enumerate(METHODS)}
    for _ in range(2):
        answers = await asyncio.gather(
            *(decode(engine, m, prompt, max_tokens=TOKENS) for m, prompt in prompts.items())
        )
        for prompt, answer in zip(prompts.values(), answers, strict=True):
            assert answer.error is None
            assert answer.tokens == reference(byte_bundle, prompt, TOKENS)
        prompts = {
            m: [*prompt, *answer.tokens, 7]
            for (m, prompt), answer in zip(prompts.items(), answers, strict=True)
        }
    assert engine.load().healthy
    pool, prefixes = engine._target.pool, engine._scheduler.prefixes
    await until(lambda: pool.free_rows + len(prefixes._kept) == pool.rows)
