"""Hashes of what vLLM's events say is cached, against the prompts' own hashes."""

import random
from collections.abc import Sequence

import pytest

from schemas.prefixes import HASH_BYTES, REPORTED, prefix_hashes

pytestmark = pytest.mark.vllm


@pytest.fixture
def cached():
    from workers.vllm_engine.cached_blocks import CachedBlocks

    return CachedBlocks()


def stored(tokens: Sequence[int], block: int, scope: str = "", kept: int = 0, method: str = ""):
    """The event of a prompt's full blocks behind the first `kept` ones."""
    from vllm.distributed.kv_events import BlockStored

    from workers.vllm_engine.cached_blocks import SEPARATOR

    salt = f"{scope}{SEPARATOR}{method}" if scope or method else None
    names = [hash((salt, *tokens[: block * (i + 1)])) for i in range(len(tokens) // block)]
    first = None if salt is None else (salt,)
    return BlockStored(
        block_hashes=names[kept:],
        parent_block_hash=names[kept - 1] if kept else None,
        token_ids=list(tokens[kept * block : len(names) * block]),
        block_size=block,
        lora_id=None,
        medium="GPU",
        lora_name=None,
        extra_keys=[first if not kept and not i else None for i in range(kept, len(names))],
        group_idx=0,
    )


def removed(event, last: int):
    from vllm.distributed.kv_events import BlockRemoved

    return BlockRemoved(block_hashes=event.block_hashes[-last:], medium="GPU")


def split(hashes: bytes) -> set[bytes]:
    return {hashes[i : i + HASH_BYTES] for i in range(0, len(hashes), HASH_BYTES)}


@pytest.mark.parametrize("block", [16, 48, 128])
def test_the_prefixes_of_full_blocks_are_reported(cached, block: int) -> None:
    rng, expected = random.Random(block), set[bytes]()
    for scope in ("", "acme", "acme key"):
        tokens = [rng.randrange(50_000) for _ in range(700)]
        full = 700 // block
        begin, rest = stored(tokens[: full // 2 * block], block, scope), full // 2
        cached.apply([begin, stored(tokens, block, scope, kept=rest)])
        expected |= set(prefix_hashes(tokens[: full * block], scope))
    assert split(cached.hashes()) == expected


def test_methods_of_one_scope_have_the_same_hashes_and_other_layers_none(cached) -> None:
    tokens = list(range(256))
    cached.apply([stored(tokens, 128, "acme", method="eagle3"), stored(tokens, 128, "acme")])
    assert split(cached.hashes()) == set(prefix_hashes(tokens, "acme"))
    other = stored([7] * 256, 128)
    other.group_idx = 1
    elsewhere = stored([8] * 256, 128)
    elsewhere.medium = "CPU"
    cached.apply([other, elsewhere])
    assert split(cached.hashes()) == set(prefix_hashes(tokens, "acme"))


def test_evicted_blocks_and_those_behind_lost_ones_are_left_out(cached) -> None:
    from vllm.distributed.kv_events import AllBlocksCleared

    tokens = list(range(512))
    event = stored(tokens, 128)
    cached.apply([event, removed(event, 2)])
    assert split(cached.hashes()) == set(prefix_hashes(tokens[:256], ""))
    cached.apply([stored(tokens, 128, kept=3)])  # its parent is gone
    assert split(cached.hashes()) == set(prefix_hashes(tokens[:256], ""))
    cached.apply([AllBlocksCleared()])
    assert cached.hashes() == b""


def test_a_report_has_the_newest_prefixes_with_their_beginnings(cached) -> None:
    prompts = [[n, *range(1_000)] for n in range(200)]
    cached.apply(stored(prompt, 16) for prompt in prompts)
    found = cached.hashes()
    assert len(found) == REPORTED * HASH_BYTES
    newest = prefix_hashes(prompts[-1][:992], "")
    assert [found[i * HASH_BYTES :][:HASH_BYTES] for i in range(len(newest))] == newest
