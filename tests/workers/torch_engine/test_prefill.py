"""Long prompts are read in chunks between the steps of those who decode."""

from typing import Any

import pytest
from decoding import assert_greedy
from rig import words

from workers.bundle import Bundle
from workers.torch_engine.models.layout import Layout

LOSSLESS = ["naive", "draft_verify", "ngram"]
CHUNK = 16


def forwards(model: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Tokens of every forward of a model from now on."""
    seen: list[int] = []
    forward = model.forward

    def counted(layout: Layout, *rest: Any) -> Any:
        seen.append(len(layout.tokens))
        return forward(layout, *rest)

    monkeypatch.setattr(model, "forward", counted)
    return seen


def test_nobody_waits_for_more_than_a_chunk(make_rig, byte_bundle, monkeypatch):
    rig = make_rig(byte_bundle, LOSSLESS, prefill_chunk=CHUNK)
    running = rig.submit("naive", [1, 2], max_tokens=60)
    rig.round()
    seen = forwards(rig.engine._target.model, monkeypatch)
    long = rig.submit("draft_verify", words(6 * CHUNK + 5), max_tokens=20)
    short = rig.submit("ngram", words(3), max_tokens=20)
    for _ in range(7):
        before = running.output_tokens
        seen.clear()
        assert not long.output_tokens
        rig.round()
        assert running.output_tokens == before + 1
        assert sum(seen[:-1]) <= CHUNK
    assert long.output_tokens == 2
    assert short.output_tokens >= 2
    answers = rig.finish(running, long, short)
    for sequence, answer in zip((running, long, short), answers, strict=True):
        prompt = sequence.request.prompt_token_ids
        assert_greedy(byte_bundle, prompt, answer.tokens, len(answer.tokens))


def test_short_prompts_are_read_together(make_rig, byte_bundle, monkeypatch):
    """As many as are allowed in one forward, in the line's order, by any mix of methods."""
    rig = make_rig(byte_bundle, LOSSLESS, prefill_chunk=64, joint_prompt_tokens=20)
    seen = forwards(rig.engine._target.model, monkeypatch)
    prompts = [words(length, length) for length in (9, 8, 3, 5, 40, 30)]
    methods = LOSSLESS * 2
    asked = [rig.submit(m, p, max_tokens=9) for m, p in zip(methods, prompts, strict=True)]
    rig.round()
    assert seen[:3] == [9 + 8 + 3, 5, 64 - 25]
    assert [s.output_tokens > 0 for s in asked] == [True] * 4 + [False] * 2
    for prompt, answer in zip(prompts, rig.finish(*asked), strict=True):
        assert_greedy(byte_bundle, prompt, answer.tokens, 9)


def test_who_would_find_more_of_its_prompt_later_waits(make_rig, byte_bundle: Bundle) -> None:
    rig = make_rig(byte_bundle, ["naive"], joint_prompt_tokens=40)
    system = words(30)
    asked = [rig.submit("naive", [*system, *words(5, seed)], max_tokens=4) for seed in (1, 2, 3)]
    cached = [answer.stats.cached_prompt_tokens for answer in rig.finish(*asked)]
    assert cached == [0, 30, 30]


def test_the_draft_model_reads_in_chunks(make_rig, byte_bundle, monkeypatch):
    rig = make_rig(byte_bundle, ["draft_verify"], prefill_chunk=CHUNK)
    drafter: Any = rig.engine._methods["draft_verify"].plan.drafter
    seen = forwards(drafter.model, monkeypatch)
    asked = [rig.submit("draft_verify", words(5 * CHUNK, seed), max_tokens=40) for seed in (1, 2)]
    answers = rig.finish(*asked)
    assert sum(seen) > 10 * CHUNK
    assert max(seen) <= CHUNK + 2
    for sequence, answer in zip(asked, answers, strict=True):
        prompt = sequence.request.prompt_token_ids
        assert_greedy(byte_bundle, prompt, answer.tokens, 40)
        assert answer.stats.accepted_tokens > 0


def test_what_others_prompts_take_is_no_answers_own_time(make_rig, byte_bundle: Bundle) -> None:
    rig = make_rig(byte_bundle, LOSSLESS, prefill_chunk=CHUNK)
    alone = rig.finish(rig.submit("naive", [1, 2], max_tokens=20))[0].stats
    assert alone.stalled_seconds == 0.0
    running = rig.submit("naive", [1, 2], max_tokens=40)
    rig.round()
    late = rig.submit("draft_verify", words(6 * CHUNK + 5), max_tokens=20)
    first, second = (answer.stats for answer in rig.finish(running, late))
    assert 0.0 < first.stalled_seconds < first.decode_seconds
    assert second.stalled_seconds == 0.0, "its own prompt is its own"
    phases = first.draft_seconds + first.verify_seconds + first.sample_seconds
    whole = phases + first.other_seconds + first.stalled_seconds
    assert whole == pytest.approx(first.decode_seconds, rel=1e-6)
