"""What `adaptive` does with a step: by its cost and by what was accepted before."""

import random

import numpy as np
from decoding import assert_greedy, decode
from rig import has_seen

from workers.bundle import Bundle

TOKENS = 40


def prompt(length: int = 12) -> list[int]:
    return random.Random(length).sample(range(256), length)


async def test_where_rows_are_free_the_learned_drafter_drafts(load_engine, byte_bundle, cost):
    cost(np.ones_like)
    engine = load_engine(["adaptive"], byte_bundle)
    has_seen(engine, medusa=3, eagle3=3)
    answer = await decode(engine, "adaptive", prompt(), max_tokens=TOKENS)
    assert "eagle3" in answer.stats.by_drafter
    assert "medusa" not in answer.stats.by_drafter
    assert_greedy(byte_bundle, prompt(), answer.tokens, TOKENS)


async def test_one_drafter_whose_length_is_decided(load_engine, byte_bundle: Bundle, cost) -> None:
    cost(lambda rows: np.maximum(rows, 4.0))  # three draft tokens beside the root cost nothing
    engine = load_engine(["adaptive_length"], byte_bundle)
    answer = await decode(engine, "adaptive_length", prompt(), max_tokens=TOKENS)
    assert answer.stats.by_drafter.keys() <= {"eagle3", "none"}
    assert 0 < answer.stats.drafted_tokens <= 3 * answer.stats.target_steps
    assert_greedy(byte_bundle, prompt(), answer.tokens, TOKENS)


async def test_a_second_engine_begins_with_what_it_learned(load_engine, byte_bundle, tmp_path):
    for threads, known in ((1, False), (1, True), (2, False)):
        engine = load_engine(["adaptive", "suffix"], byte_bundle, threads=threads)
        engine.remember(tmp_path)
        found = engine._looking_up[0].controller.estimates.dump()
        assert bool(found) == known
        await decode(engine, "adaptive", prompt(), max_tokens=TOKENS)
        engine.close()
