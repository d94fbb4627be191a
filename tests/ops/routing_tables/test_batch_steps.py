"""Step times of a batch: only what all of it shares is counted, and what its texts are."""

import itertools
import random

import pytest

from ops.common.decoding import EncodedPrompt
from ops.common.prompts import Prompt
from ops.routing_tables import profile_runs
from ops.routing_tables.profile_runs import BatchSteps, _texts
from schemas import DecodeChunk


@pytest.fixture
def clock(monkeypatch):
    """Every look at the clock is a second after the one before."""
    seconds = itertools.count()
    monkeypatch.setattr(profile_runs.time, "perf_counter", lambda: float(next(seconds)))


def chunk(*drafted: bool, end: bool = False) -> DecodeChunk:
    return DecodeChunk(
        request_id="a",
        text="",
        token_ids=tuple(range(len(drafted))),
        drafted=drafted,
        finish_reason="length" if end else None,
    )


@pytest.mark.usefixtures("clock")
def test_steps_before_the_last_prompt_is_read_do_not_count():
    steps = BatchSteps(2, wanted=2)
    for _ in range(5):
        steps.add(0, chunk(False))
    steps.add(1, chunk(False))  # the last one's prompt is read: here it begins
    for index in (0, 1, 0, 1):
        steps.add(index, chunk(True, False))
    assert steps.over.is_set()
    assert steps.count == 4
    # four seconds for two steps of two sequences
    assert steps.seconds == 2.0


@pytest.mark.usefixtures("clock")
def test_a_chunk_of_several_steps_counts_all_of_them():
    steps = BatchSteps(1, wanted=3)
    steps.add(0, chunk(False))
    steps.add(0, chunk(True, True, False, False, True, False))
    assert steps.over.is_set()
    assert steps.count == 3


@pytest.mark.usefixtures("clock")
def test_it_is_over_when_one_ends():
    steps = BatchSteps(2, wanted=100)
    for index in (0, 1, 0, 1):
        steps.add(index, chunk(False))
    steps.add(0, chunk(False, end=True))
    steps.add(1, chunk(False))
    assert steps.over.is_set()
    assert steps.count == 3


def test_without_a_step_together_there_is_no_figure():
    steps = BatchSteps(2, wanted=1)
    steps.add(0, chunk(False, end=True))
    with pytest.raises(ValueError, match="before all of them"):
        _ = steps.seconds


LONG, SHORT = tuple(range(100, 140)), tuple(range(200, 210))
ENCODED = [
    EncodedPrompt(Prompt(id=name, domain="code", messages=()), ids)
    for name, ids in (("long", LONG), ("short", SHORT))
]


def test_texts_end_with_a_whole_prompt():
    """What follows is its answer: half a prompt's continuation is copied more than answers are."""
    for text in _texts(ENCODED, 64, random.Random(0), 8):
        assert len(text) == 64
        assert text[-len(LONG) :] == LONG or text[-len(SHORT) :] == SHORT


def test_larger_batches_go_on_from_the_texts_of_smaller_ones():
    few, many = (_texts(ENCODED, 64, random.Random("0 128"), count) for count in (8, 16))
    assert many[:8] == few
    assert len(set(many)) > 1


def test_no_answer_is_asked_for_twice_while_there_are_prompts():
    """The second one would be copied from the first."""
    several = [
        EncodedPrompt(Prompt(id=str(n), domain="code", messages=()), tuple(range(n, n + 20)))
        for n in range(0, 800, 100)
    ]
    for seed in range(5):
        ends = {text[-20:] for text in _texts(several, 64, random.Random(seed), 8)}
        assert len(ends) == len(several)
