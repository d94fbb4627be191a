"""The bare hop's client, on a server in the same process."""

import json

import httpx

from ops.bench.http.runs import bare_overhead_ms
from schemas import DecodeRequest


async def test_the_bare_hops_events_end_at_a_line_feed_only():
    last = {"text": "one\u2028two\u0085three", "stats": {"first_token_seconds": -1.0}}
    body = f"data: {json.dumps({'text': ''})}\n\ndata: {json.dumps(last, ensure_ascii=False)}\n\n"
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=body.encode()))
    request = DecodeRequest(request_id="r", method="naive", prompt_token_ids=(1,))
    async with httpx.AsyncClient(base_url="http://service", transport=transport) as client:
        milliseconds = await bare_overhead_ms(client, request)
    assert milliseconds is not None
    assert milliseconds > 1000.0
