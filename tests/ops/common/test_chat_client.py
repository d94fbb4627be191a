"""The chat endpoint's client, on a server in the same process."""

import json

import httpx

from ops.common.chat_client import Reply, stream_chat


async def test_a_streamed_event_ends_at_a_line_feed_only():
    pieces = ["one\u2028two", "\u0085three"]
    events = [{"choices": [{"delta": {"content": piece}}]} for piece in pieces]
    body = "".join(f"data: {json.dumps(event, ensure_ascii=False)}\n\n" for event in events)

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=f"{body}data: [DONE]\n\n".encode())

    reply = Reply()
    transport = httpx.MockTransport(answer)
    async with httpx.AsyncClient(base_url="http://service", transport=transport) as client:
        assert [piece async for piece in stream_chat(client, [], reply)] == pieces
    assert reply.text == "".join(pieces)
