"""A prefix that prompts share is computed once, and never changes an answer."""

from collections.abc import Sequence

import pytest
from decoding import Answer, assert_greedy
from rig import Rig, words

from schemas.prefixes import HASH_BYTES, prefix_hashes
from workers.bundle import Bundle
from workers.torch_engine.models.prefix_cache import MIN_SHARED

LOSSLESS = ["naive", "draft_verify", "ngram"]


SYSTEM = words(40, seed=99)


def check(bundle: Bundle, prompt: Sequence[int], answer: Answer) -> int:
    """That the answer is Hugging Face's; the number of prompt tokens that were not computed."""
    assert_greedy(bundle, prompt, answer.tokens, answer.stats.output_tokens)
    return answer.stats.cached_prompt_tokens


@pytest.mark.parametrize("chunk", [16, 256])
def test_a_system_prompt_is_computed_once(make_rig, byte_bundle: Bundle, chunk: int) -> None:
    """By those that arrive together too: the second begins when the first has been read."""
    rig: Rig = make_rig(byte_bundle, LOSSLESS, prefill_chunk=chunk)
    prompts = [[*SYSTEM, *words(5, seed)] for seed in range(6)]
    methods = LOSSLESS * 2
    asked = [rig.submit(m, p, max_tokens=20) for m, p in zip(methods, prompts, strict=True)]
    answers = rig.finish(*asked)
    cached = [check(byte_bundle, p, a) for p, a in zip(prompts, answers, strict=True)]
    assert cached[0] == 0
    assert min(cached[1:]) >= len(SYSTEM)


def test_another_scopes_prompt_is_read_anew(make_rig, byte_bundle: Bundle) -> None:
    """Neither a running row nor a kept one of another scope is copied, and none is thrown away for
    holding the same text."""
    rig: Rig = make_rig(byte_bundle, ["naive"])
    for expected in (0, len(SYSTEM) - 1):
        asked = [rig.submit("naive", SYSTEM, max_tokens=9, scope=scope) for scope in ("a", "b")]
        answers = rig.finish(*asked)
        assert [check(byte_bundle, SYSTEM, answer) for answer in answers] == [expected] * 2
    assert len(rig.scheduler.prefixes._kept) == 2


def test_short_beginnings_are_not_worth_a_copy(make_rig, byte_bundle: Bundle) -> None:
    rig: Rig = make_rig(byte_bundle, ["naive"])
    for seed in range(3):
        prompt = [*SYSTEM[: MIN_SHARED - 1], *words(30, seed)]
        (answer,) = rig.finish(rig.submit("naive", prompt, max_tokens=3))
        assert check(byte_bundle, prompt, answer) == 0


def test_requests_come_first_and_the_oldest_prefix_goes(make_rig, byte_bundle: Bundle) -> None:
    """Two rows in all: what is kept gives way to requests, the least recently used first."""
    rig: Rig = make_rig(byte_bundle, LOSSLESS, kv_slots=512)
    assert rig.pool.rows == 2
    first, second, third = ([*words(30, seed)] for seed in (1, 2, 3))

    def ask(*prompts: list[int]) -> list[int]:
        asked = [rig.submit("draft_verify", p, max_tokens=8) for p in prompts]
        answers = rig.finish(*asked)
        return [check(byte_bundle, p, a) for p, a in zip(prompts, answers, strict=True)]

    assert ask(first, second) == [0, 0]
    assert len(rig.scheduler.prefixes._kept) == 2
    assert ask(first) == [29]
    assert ask(third) == [0]
    assert ask(first) == [29], "the second was used longer ago"
    assert ask(second) == [0]
    assert ask(third, third) == [0, 29]
    assert ask([*third, 5]) == [30]


def test_the_only_row_is_used_in_place(make_rig, byte_bundle: Bundle) -> None:
    rig: Rig = make_rig(byte_bundle, LOSSLESS, kv_slots=256)
    assert rig.pool.rows == 1
    for method, expected in (("naive", 0), ("ngram", 39), ("draft_verify", 39)):
        (answer,) = rig.finish(rig.submit(method, SYSTEM, max_tokens=12))
        assert check(byte_bundle, SYSTEM, answer) == expected


def test_half_read_prompts_are_kept_and_failed_ones_are_not(make_rig, byte_bundle, monkeypatch):
    rig: Rig = make_rig(byte_bundle, ["naive"], prefill_chunk=16)
    sequence = rig.submit("naive", SYSTEM, max_tokens=4)
    rig.round()
    sequence.stream.cancelled = True
    rig.round()
    assert len(rig.scheduler.prefixes._kept) == 1
    sequence = rig.submit("naive", SYSTEM, max_tokens=4)
    with monkeypatch.context() as patch:
        patch.setattr(rig.engine._target.model, "forward", lambda *_: 1 / 0)
        rig.round()
    failed = rig.answer(sequence)
    assert failed.finish == "error"
    assert failed.stats.cached_prompt_tokens == 16
    assert len(rig.scheduler.prefixes._kept) == 0
    (answer,) = rig.finish(rig.submit("naive", SYSTEM, max_tokens=4))
    assert check(byte_bundle, SYSTEM, answer) == 0


def reported(rig):
    hashes = rig.scheduler.prefixes.hashes()
    return [hashes[begin : begin + HASH_BYTES] for begin in range(0, len(hashes), HASH_BYTES)]


def test_kept_rows_have_hashes(make_rig, byte_bundle: Bundle) -> None:
    """Of the prompt and its answer, as far as they are kept and in their scope; each once."""
    rig: Rig = make_rig(byte_bundle, ["naive"])
    prompts = [[*SYSTEM, *words(60, seed)] for seed in range(2)]
    for prompt in prompts:
        rig.finish(rig.submit("naive", prompt, max_tokens=9, scope="a"))
    held = reported(rig)
    assert held
    assert len(set(held)) == len(held)
    for prompt in prompts:
        assert {*prefix_hashes(prompt, "a")} <= {*held}
        assert {*prefix_hashes(prompt, "b")}.isdisjoint(held)
