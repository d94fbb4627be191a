"""Streaming text: whole characters, stop strings across chunk borders."""

import pytest
from conftest_bundle import (
    byte_tokenizer,
    fallback_tokenizer,
    make_bundle,
)
from decoding import decode
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.bundle import Bundle
from workers.text import Detokenizer, StopStrings

BYTES = byte_tokenizer()


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


@pytest.mark.parametrize("method", ["naive", "draft_verify", "ngram"])
async def test_an_answer_ends_before_its_stop_string(load_engine, byte_bundle, method):
    engine = load_engine([method], byte_bundle)
    prompt = list(range(10, 20)) * 3
    free = await decode(engine, method, prompt, max_tokens=80)
    at = next(i for i in range(3, len(free.text) - 3) if free.text[i : i + 3].isascii())
    stop = free.text[at : at + 3]
    answer = await decode(engine, method, prompt, max_tokens=80, stop=(stop, "never said"))
    assert answer.finish == "stop"
    assert answer.text == free.text[: free.text.index(stop)]
    assert stop not in answer.text
    assert answer.tokens == free.tokens[: len(answer.tokens)]
    assert stop in byte_bundle.tokenizer().decode(answer.tokens)


@pytest.fixture(scope="module")
def fallback_bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("bundle") / "fallback"
    return make_bundle(folder, tokenizer=fallback_tokenizer())


@pytest.mark.parametrize("stop", [(), ("or",), ("\n", "\ufffd\ufffd\ufffd\ufffd")])
async def test_byte_fallback_answers_are_the_same_by_every_method(
    load_engine, fallback_bundle: Bundle, stop: tuple[str, ...]
) -> None:
    """Most of what a random model says are broken bytes; drafts come several tokens at a time."""
    engine = load_engine(["naive", "draft_verify", "ngram"], fallback_bundle)
    backend = fallback_bundle.tokenizer().backend_tokenizer
    prompt = list(range(250, 265)) * 2
    wishes = {"max_tokens": 60, "temperature": 1.0, "seed": 3, "stop": stop}
    answers = [await decode(engine, m, prompt, **wishes) for m in ("naive", "draft_verify")]
    answers.append(await decode(engine, "ngram", prompt, **wishes))
    for answer in answers:
        assert (answer.tokens, answer.text) == (answers[0].tokens, answers[0].text)
        decoder = Detokenizer(backend)
        text = "".join([decoder.push([token]) for token in answer.tokens]) + decoder.flush()
        assert answer.text == cut(text, [*stop])[0]
