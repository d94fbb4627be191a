"""Requests come, go and end in any order: greedy answers are Hugging Face's, nothing leaks."""

import random
from dataclasses import dataclass
from typing import Any

import pytest
from decoding import Answer, assert_greedy, method_of, reference
from hypothesis import given, settings
from hypothesis import strategies as st
from rig import Rig

from schemas import MethodSpec
from workers.bundle import Bundle
from workers.engine import EngineBusyError
from workers.torch_engine.drafters.draft_model import KvDrafter
from workers.torch_engine.models import kv_pool
from workers.torch_engine.sequence import DecodeSequence

METHODS: list[str | MethodSpec] = [
    "naive",
    "draft_verify",
    "ngram",
    "suffix",
    "adaptive",
    method_of("model_tree", "draft_model", "eagle2", tree={"nodes": 6, "k": 2}),
    "fuzzy",
    "specinfer",
    "medusa",
    "eagle",
    "eagle2",
    "eagle3",
]
NAMES = [m if isinstance(m, str) else m.name for m in METHODS]
ROWS, WAITING, CHUNK, CONTEXT, MOST = 3, 3, 16, 128, 30


def _prompts() -> list[list[int]]:
    """From one token to several chunks; many begin alike, as conversations and templates do."""
    rng = random.Random(7)
    long = [rng.randrange(256) for _ in range(70)]
    own = [[rng.randrange(256) for _ in range(n)] for n in (1, 2, CHUNK, CHUNK + 1, 45)]
    branches = [long[:n] + [rng.randrange(256) for _ in range(5)] for n in (20, 33, 50)]
    return [*own, *branches, long, long[:40], [3, 4, 5] * 8]


PROMPTS = _prompts()


@dataclass
class Asked:
    """A request, and what became of it."""

    sequence: DecodeSequence
    cancelled: bool = False

    def expected(self, bundle: Bundle) -> list[int]:
        """Hugging Face's tokens, cut where the request says."""
        sampling = self.sequence.sampling
        prompt = self.sequence.request.prompt_token_ids
        tokens = reference(bundle, prompt, MOST)[: sampling.max_tokens]
        if not sampling.stop:
            return tokens
        backend = bundle.tokenizer().backend_tokenizer
        ends = (i for i in range(1, len(tokens)) if sampling.stop[0] in backend.decode(tokens[:i]))
        return tokens[: next(ends, len(tokens))]


def letter(bundle: Bundle, prompt: list[int], which: int) -> tuple[str, ...]:
    """Choose a printable letter of the answer to stop at, if there is one."""
    tokens = [t for t in reference(bundle, prompt, MOST) if t < 256]
    texts = bundle.tokenizer().batch_decode([[t] for t in tokens])
    found = [text for text in texts if text.isascii() and text.isprintable()]
    return (found[which % len(found)],) if found else ()


class Chaos:
    """A rig, everything asked of it, and what must hold after every round."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.rig = Rig(
            bundle,
            METHODS,
            max_batch=ROWS,
            kv_slots=ROWS * CONTEXT,
            max_context=CONTEXT,
            max_waiting=WAITING,
            prefill_chunk=CHUNK,
        )
        self.asked: list[Asked] = []

    def submit(self, method: int, prompt: int, most: int, stop: int) -> None:
        running, waiting = map(len, self.rig.scheduler.underway())
        sampling: dict[str, Any] = {"max_tokens": most}
        if stop:
            sampling["stop"] = letter(self.bundle, PROMPTS[prompt], stop)
        try:
            sequence = self.rig.submit(NAMES[method], PROMPTS[prompt], **sampling)
        except EngineBusyError:
            assert running + waiting == ROWS + WAITING
        else:
            assert running + waiting < ROWS + WAITING
            self.asked.append(Asked(sequence))

    def cancel(self, which: int) -> None:
        if self.asked:
            asked = self.asked[which % len(self.asked)]
            asked.cancelled = asked.sequence.stream.cancelled = True

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.rig.round()
            self.check()

    def check(self) -> None:
        """Every row is somebody's, kept or free, and drafters know only those who run."""
        pool, running = self.rig.pool, self.rig.scheduler._running
        assert len({s.lease.row for s in running}) == len(running)
        kept = len(self.rig.scheduler.prefixes._kept)
        assert pool.free_rows + len(running) + kept == pool.rows
        ids = {s.id for s in running}
        for drafter in self.rig.scheduler._rows._drafters:
            for name, remembered in vars(drafter).items():
                if isinstance(remembered, dict) and name != "learned":
                    assert remembered.keys() <= ids
        used = {s.lease for s in running}
        held = {holding.lease for holding in self.rig.scheduler.prefixes._kept}
        for drafter in self.rig.scheduler._rows._drafters:
            if isinstance(drafter, KvDrafter):
                assert drafter._rows._used.keys() <= used
                assert drafter._rows._kept.keys() <= held

    def settle(self) -> None:
        """Nobody is left, and every answer is what it ought to be."""
        answers = self.rig.finish(*(a.sequence for a in self.asked))
        self.check()
        assert not any(self.rig.scheduler.underway())
        assert self.rig.scheduler.free_slots == ROWS * CONTEXT
        assert self.rig.scheduler.healthy
        for asked, answer in zip(self.asked, answers, strict=True):
            if self.rig.engine._methods[asked.sequence.method].spec.lossless:
                self.compare(asked, answer)
            else:
                assert answer.finish in ("stop", "length", "cancelled")
        self.rig.close()

    def compare(self, asked: Asked, answer: Answer) -> None:
        prompt, tokens = asked.sequence.request.prompt_token_ids, answer.tokens
        if answer.finish == "cancelled":
            assert asked.cancelled
        elif answer.finish == "length":
            assert len(tokens) == asked.sequence.sampling.max_tokens
        else:
            assert answer.finish == "stop"
        expected = asked.expected(self.bundle)
        if tokens[: len(expected)] == expected[: len(tokens)]:  # else they part at a near-tie
            assert len(tokens) == len(expected) or answer.finish == "cancelled"
            assert len(tokens) <= len(expected)
        if tokens:
            assert_greedy(self.bundle, prompt, tokens, len(tokens))


EVENTS = st.one_of(
    st.tuples(
        st.just("submit"),
        st.integers(0, len(NAMES) - 1),
        st.integers(0, len(PROMPTS) - 1),
        st.integers(1, MOST),
        st.integers(0, 3),
    ),
    st.tuples(st.just("rounds"), st.integers(1, 8)),
    st.tuples(st.just("cancel"), st.integers(0, 20)),
)


def play(bundle: Bundle, script: list[tuple[Any, ...]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kv_pool, "BLOCK", 7)  # rows move for several rounds
        chaos = Chaos(bundle)
        for action, *arguments in script:
            getattr(chaos, action)(*arguments)
        chaos.settle()


@settings(max_examples=15, deadline=None)
@given(st.lists(EVENTS, min_size=4, max_size=30))
def test_interleavings(byte_bundle: Bundle, script: list[tuple[Any, ...]]) -> None:
    play(byte_bundle, script)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.lists(EVENTS, min_size=10, max_size=80))
def test_many_interleavings(byte_bundle: Bundle, script: list[tuple[Any, ...]]) -> None:
    play(byte_bundle, script)
