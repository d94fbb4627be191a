"""What the step grid's sequences go on from."""

import random

from ops.common.decoding import EncodedPrompt
from ops.common.prompts import Prompt
from ops.routing_tables.profile_runs import _texts

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
