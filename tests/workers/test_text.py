"""Text of tokens in any pieces, stop strings across their borders, and loops."""

from typing import Any

import pytest
from conftest_bundle import byte_tokenizer, fallback_tokenizer
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from schemas import SamplingParams
from workers.text import BROKEN, AnswerText, Detokenizer, StopStrings, is_looping

BYTE_LEVEL = byte_tokenizer().backend_tokenizer
FALLBACK = fallback_tokenizer().backend_tokenizer
WORDS = ["▁a", "a", "▁", "▁▁", "##b", ".", "'s", "é", BROKEN, "中", "😀", "b</w>", "d</w>"]


def word_tokenizer(decoder: Any) -> Tokenizer:
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="a"))
    if decoder is not None:
        backend.decoder = decoder
    backend.add_special_tokens(["<s>"])
    backend.add_tokens(["<think>"])
    return backend


LLAMA2 = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
BACKENDS = {
    "byte-level": BYTE_LEVEL,
    "wordpiece": word_tokenizer(decoders.WordPiece()),
    "metaspace": word_tokenizer(decoders.Metaspace()),
    "metaspace-never": word_tokenizer(decoders.Metaspace(prepend_scheme="never")),
    "bpe": word_tokenizer(decoders.BPEDecoder()),
    "strip": word_tokenizer(decoders.Sequence([*LLAMA2, decoders.Strip(" ", 1, 0)])),
    "none": word_tokenizer(None),
}


def pieces(backend: Tokenizer, tokens: list[int], sizes: list[int]) -> list[str]:
    """What comes of the tokens in pieces of these sizes, over and over, and at the end."""
    decoder, found, at, turn = Detokenizer(backend), list[str](), 0, 0
    while at < len(tokens):
        size = sizes[turn % len(sizes)]
        found.append(decoder.push(tokens[at : at + size]))
        at, turn = at + size, turn + 1
    return [*found, decoder.flush()]


SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
@settings(max_examples=300, deadline=None)
@given(data=st.data(), sizes=SIZES)
def test_pieces_are_the_whole(backend: Tokenizer, data: st.DataObject, sizes: list[int]) -> None:
    ids = st.integers(0, backend.get_vocab_size() + 1)  # some of no token
    tokens = data.draw(st.lists(ids, max_size=14))
    assert "".join(pieces(backend, tokens, sizes)) == backend.decode(tokens)


BYTES = [FALLBACK.token_to_id(f"<0x{byte:02X}>") for byte in range(256)]


@settings(max_examples=500, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.integers(0, FALLBACK.get_vocab_size() - 1),
            st.sampled_from([BYTES[b] for b in (0x0A, 0x20, 0x41, 0xE4, 0xB8, 0xAD, 0xF0, 0xFF)]),
        ),
        max_size=14,
    ),
    SIZES,
)
@example([BYTES[b] for b in (0xE4, 0xB8, 0xAD, 0xFF)], [1])
@example([BYTES[b] for b in (0xE4, 0xB8, 0xAD, 0xFF)], [4])
def test_byte_fallback_in_pieces(tokens: list[int], sizes: list[int]) -> None:
    found = "".join(pieces(FALLBACK, tokens, sizes))
    assert found == "".join(pieces(FALLBACK, tokens, [1]))
    if BROKEN not in FALLBACK.decode(tokens):
        assert found == FALLBACK.decode(tokens)


@settings(max_examples=300, deadline=None)
@given(st.text("aé中😀👩🏽‍🚀\ufffd \n", max_size=14), SIZES)
def test_what_a_byte_fallback_tokenizer_reads_comes_back(text: str, sizes: list[int]) -> None:
    tokens = FALLBACK.encode(text, add_special_tokens=False).ids
    found = pieces(FALLBACK, tokens, sizes)
    assert "".join(found) == FALLBACK.decode(tokens) == text
    if BROKEN not in text:
        assert BROKEN not in "".join(found)


def test_characters_come_with_their_last_byte() -> None:
    tokens = FALLBACK.encode("a😀中\n😀", add_special_tokens=False).ids
    found = pieces(FALLBACK, tokens, [1])
    assert [piece for piece in found if piece] == ["a", "😀", "中", "\n", "😀"]
    assert found[-2:] == ["😀", ""]


@pytest.mark.parametrize("backend", [BYTE_LEVEL, FALLBACK], ids=["byte-level", "fallback"])
@pytest.mark.parametrize("size", [1, 3])
def test_a_stop_string_of_several_bytes_ends_the_answer(backend: Tokenizer, size: int) -> None:
    tokens = backend.encode("say 😀中 and more", add_special_tokens=False).ids
    answer, text, kept = AnswerText(backend, (), SamplingParams(stop=("😀中",))), "", 0
    for at in range(0, len(tokens), size):
        count, piece = answer.push(tokens[at : at + size])
        text, kept = text + piece, kept + count
        if answer.ended:
            break
    assert answer.ended
    assert text + answer.flush() == "say "
    assert kept == len(backend.encode("say 😀中", add_special_tokens=False).ids)


@pytest.mark.parametrize("backend", [BYTE_LEVEL, FALLBACK], ids=["byte-level", "fallback"])
@pytest.mark.parametrize("stops", [[], ["never"]])
def test_an_answer_keeps_the_broken_character_at_its_end(backend, stops):
    literal = backend.encode("a\ufffd", add_special_tokens=False).ids
    for tokens in (literal, backend.encode("a😀", add_special_tokens=False).ids[:-1]):
        answer = AnswerText(backend, (), SamplingParams(stop=tuple(stops)))
        _, text = answer.push(tokens)
        assert text + answer.flush() == backend.decode(tokens)
        assert BROKEN in backend.decode(tokens)


@pytest.mark.parametrize("backend", [BYTE_LEVEL, FALLBACK], ids=["byte-level", "fallback"])
def test_broken_bytes_take_as_long_as_others(backend: Tokenizer) -> None:
    """A text four times as long takes about four times as many decoded tokens, not sixteen."""
    broken = backend.token_to_id("<0xFF>" if backend is FALLBACK else "ÿ")

    def decoded(count: int) -> int:
        counting = CountingBackend(backend)
        detokenizer = Detokenizer(counting)
        text = "".join([detokenizer.push([broken]) for _ in range(count)]) + detokenizer.flush()
        assert text == BROKEN * count
        return counting.decoded

    assert decoded(400) <= 4 * max(decoded(100), 10)


class CountingBackend:
    """A tokenizer that counts the tokens it is asked to decode."""

    def __init__(self, backend: Tokenizer) -> None:
        self._backend, self.decoded = backend, 0

    def decode(self, tokens: list[int]) -> str:
        self.decoded += len(tokens)
        return self._backend.decode(tokens)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


def cut(text: str, stops: list[str]) -> tuple[str, bool]:
    """The whole text up to the stop string that is complete first, and whether there is one."""
    for end in range(len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            return text[: end - max(map(len, complete))], True
    return text, False


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.text("abc", max_size=5), max_size=12),
    st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=4),
)
def test_stop_strings_cut_wherever_the_chunks_break(pieces: list[str], stops: list[str]) -> None:
    watcher, said = StopStrings(stops), ""
    for piece in pieces:
        said += watcher.push(piece)
        if watcher.hit:
            break
    wanted, hit = cut("".join(pieces), stops)
    assert watcher.hit == hit
    assert said + watcher.flush() == wanted


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.text("abc", max_size=5), max_size=12),
    st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=4),
    st.integers(0, 12),
)
def test_a_stop_string_counts_where_it_ends_after_the_least_tokens(pieces, stops, least):
    """vLLM's rule. The stop string itself may be kept in the text."""
    watcher, said = StopStrings(stops, include=True), ""
    for index, piece in enumerate(pieces):
        said += watcher.push(piece, may_end=index >= least)
        if watcher.hit:
            break
    text, free = "".join(pieces), len("".join(pieces[:least]))
    ends = (end for end in range(free + 1, len(text) + 1) if text[:end].endswith(tuple(stops)))
    end = next(ends, None)
    assert watcher.hit == (end is not None)
    assert said + watcher.flush() == text[:end]


@pytest.mark.parametrize(
    ("tokens", "looping"),
    [
        ([1] * 31, False),
        ([1] * 32, True),
        ([1] * 31 + [2], False),
        (list(range(10)) * 4, True),
        (list(range(11)) * 4, False),
        (list(range(100)), False),
        ([9] * 40 + list(range(32)), False),
    ],
)
def test_loops(tokens: list[int], looping: bool) -> None:
    assert is_looping(tokens) is looping


@given(st.lists(st.integers(0, 1), min_size=1, max_size=10), st.integers(0, 31))
def test_whatever_repeats_three_times_to_the_end_loops(piece: list[int], offset: int) -> None:
    tokens = (piece * 64)[offset : offset + 32]
    assert is_looping([5, 5, *tokens])
