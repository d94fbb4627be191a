"""Fewer messages, the same answer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.replica.method import merged, stream_interval
from schemas import DecodeChunk


def pieces(texts):
    for i, text in enumerate(texts):
        last = i == len(texts) - 1
        yield DecodeChunk(
            request_id="r",
            text=text,
            token_ids=(i,),
            drafted=(bool(i % 2),),
            finish_reason="stop" if last else None,
        )


async def stream(texts, closed=None):
    try:
        for piece in pieces(texts):
            yield piece
    finally:
        if closed is not None:
            closed.append(True)


@pytest.mark.parametrize("interval", [0.0, 3600.0, float("inf")])
@settings(deadline=None)
@given(texts=st.lists(st.text(max_size=4), min_size=1, max_size=8))
async def test_nothing_is_lost(interval, texts):
    chunks = [chunk async for chunk in merged(stream(texts), lambda: interval)]
    assert "".join(c.text for c in chunks) == "".join(texts)
    assert [t for c in chunks for t in c.token_ids] == list(range(len(texts)))
    assert [d for c in chunks for d in c.drafted] == [bool(i % 2) for i in range(len(texts))]
    assert [c.finish_reason for c in chunks if c.finish_reason] == ["stop"]


INFINITE = float("inf")


@pytest.mark.parametrize(
    ("intervals", "messages"),
    [
        ([3600.0] * 5, ["a", "bcde"]),
        ([INFINITE] * 5, ["abcde"]),
        ([3600.0, 3600.0, 0.0, 3600.0, 3600.0], ["a", "bc", "de"]),
    ],
)
async def test_the_first_chunk_goes_at_once_and_others_together(intervals, messages):
    """The interval may change while the answer comes. A whole answer is one message."""
    given = iter(intervals)
    chunks = merged(stream(list("abcde")), lambda: next(given))
    assert [chunk.text async for chunk in chunks] == messages


def test_many_streams_share_their_messages_up_to_what_people_notice():
    assert 1 / stream_interval(1) == 2 / stream_interval(2) == pytest.approx(20)
    assert stream_interval(64) == 0.25


async def test_closing_closes_the_source():
    closed = []
    chunks = merged(stream(["a", "b"], closed), lambda: 0.0)
    await anext(chunks)
    await chunks.aclose()
    assert closed == [True]
