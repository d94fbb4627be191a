"""Long answers are read in a time that grows as they do."""

import pytest
from parsing import joined, parsed

from deployments.api.tools.formats import FENCE, HERMES, Format
from deployments.api.tools.parser import MOST_AGAIN
from deployments.api.tools.pieces import Text


@pytest.mark.parametrize(
    "unit", [r'<tool_call>{"arguments":{\"', r'<tool_call>[{"name":"f"},{"arguments":{\"']
)
def test_an_answer_of_openers_is_not_read_from_each_of_them(unit, monkeypatch):
    """From each opener on all that follows could be a call."""
    answer, read, reader = unit * 400, [], Format.reader

    def counted(form, events, opener):
        inside = reader(form, events, opener)
        next(inside)
        while True:
            read.append((yield))
            try:
                inside.send(read[-1])
            except StopIteration:
                return

    monkeypatch.setattr(Format, "reader", counted)
    pieces = parsed(HERMES, [answer])
    assert len(read) <= len(answer) + MOST_AGAIN
    assert any(isinstance(piece, Text) for piece in pieces)


@pytest.mark.parametrize("form", [HERMES, FENCE])
def test_a_whole_answer_is_read_as_one_that_comes_in_parts(form):
    call = '{"name": "get_weather", "arguments": {"city": "' + "Oslo" * 1000 + '"}}'
    answer = "Text.\n" * 500 + f"{form.begin}{call}{form.end}\n" + "{ more }" * 300
    pieces = parsed(form, [answer])
    assert joined(pieces) == joined(parsed(form, answer))
