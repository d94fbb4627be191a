"""Reasoning, and answers that break off, as Responses and Messages write them."""

import pytest

from deployments.api.responses_and_messages.message_writer import MessageWriter
from deployments.api.responses_and_messages.response_writer import ResponseWriter
from deployments.api.tools.parser import Arguments, CallBroken, CallStart, Text, Thought
from deployments.errors import ApiError
from schemas import DecodeChunk

BROKEN = [CallStart(0, "call_1", "add"), Arguments(0, '{"a"'), CallBroken(0, "...")]
WRITERS = {
    "responses": lambda: ResponseWriter({"model": "m"}, "1"),
    "messages": lambda: MessageWriter("m", "1", 9, ()),
}


def written(writer, pieces):
    events = writer.begin(None)
    for piece in pieces:
        events += writer.add(piece)
    return events


def kinds(events):
    return [name.removeprefix("response.") for name, _ in events]


def test_a_response_has_its_reasoning_before_its_text():
    writer = WRITERS["responses"]()
    events = written(writer, [Thought("Let me "), Thought("see."), Text("Yes.")])
    assert kinds(events)[2:] == [
        *("output_item.added", "content_part.added", "reasoning_text.delta"),
        *("reasoning_text.delta", "reasoning_text.done", "content_part.done", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta"),
    ]
    reasoning, message = writer.body()["output"]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "Let me see."}]
    assert (reasoning["type"], reasoning["status"]) == ("reasoning", "completed")
    assert message["content"][0]["text"] == "Yes."


def test_a_message_has_its_thinking_before_its_text():
    writer = WRITERS["messages"]()
    events = written(writer, [Thought("Let me "), Thought("see."), Text("Yes.")])
    assert kinds(events)[1:] == [
        *("content_block_start", "content_block_delta", "content_block_delta"),
        *("content_block_stop", "content_block_start", "content_block_delta"),
    ]
    thinking, text = writer.body()["content"]
    assert thinking == {"type": "thinking", "thinking": "Let me see.", "signature": ""}
    assert text == {"type": "text", "text": "Yes."}


def test_a_streamed_call_that_breaks_off_is_closed():
    responses, messages = WRITERS["responses"](), WRITERS["messages"]()
    assert kinds(written(responses, BROKEN))[-1] == "output_item.done"
    assert responses.body()["output"][0]["status"] == "incomplete"
    assert kinds(written(messages, BROKEN))[-1] == "content_block_stop"
    assert messages.body()["content"][0]["input"] == {}


@pytest.mark.parametrize("name", WRITERS)
def test_an_answer_that_breaks_off_says_so(name):
    writer = WRITERS[name]()
    written(writer, [Text("Yes")])
    last, data = writer.failed(ApiError(500, "gone"))[-1]
    if name == "responses":
        assert last == "response.failed"
        assert data["response"]["error"] == {"code": "server_error", "message": "gone"}
        assert data["response"]["output"][0]["status"] == "incomplete"
    else:
        assert last == "error"
        assert data["error"] == {"type": "api_error", "message": "gone"}


def test_the_first_and_the_last_event_of_a_message_count_the_same_cached_tokens():
    """An engine may know them only at the end."""
    writer = WRITERS["messages"]()
    [(_, begun)] = writer.begin(DecodeChunk(request_id="a", text="Yes", cached_prompt_tokens=4))
    counted = {"completion_tokens": 1, "speculative": {}}
    ended = writer.end("stop", counted | {"prompt_tokens_details": {"cached_tokens": 8}})
    first, last = begun["message"]["usage"], ended[-2][1]["usage"]
    names = ("input_tokens", "cache_read_input_tokens")
    assert [first[name] for name in names] == [last[name] for name in names] == [5, 4]
