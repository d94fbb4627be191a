"""Reading costs the caller what it costs the service, whatever becomes of the request."""

import pytest

from deployments.guard.key_file import hash_of


@pytest.mark.parametrize(
    ("path", "status", "fields"),
    [
        ("/tokenize", 200, {"prompt": "word " * 800}),
        ("/v1/messages/count_tokens", 400, {"messages": "MANY"}),
        ("/v1/chat/completions", 400, {"messages": "MANY"}),
        ("/v1/completions", 400, {"prompt": "word " * 800}),
    ],
)
async def test_what_reads_much_without_an_answer_is_charged(
    behind_guard, monkeypatch, path, status, fields
):
    """Here a millisecond counts as much as all that the key has in a minute."""
    monkeypatch.setattr("deployments.guard.caller.WORK_TOKENS", 1e7)
    key = {"name": "one", "sha256": hash_of("secret"), "limits": {"tokens_per_minute": 5000}}
    many = [{"role": "user", "content": "word " * 80}] * 10
    body = {"model": "tiny"} | {k: many if v == "MANY" else v for k, v in fields.items()}
    async with behind_guard({"keys": [key]})("secret") as client:
        assert (await client.post(path, json=body)).status_code == status
        later = await client.post(path, json=body)
    assert later.status_code == 429, later.text
