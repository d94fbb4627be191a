"""Requests that were written down: of clients from npm and PyPI, and those that once failed.

A line of requests.jsonl has a `name`, the `path` and the `body`, and what is right: the `status`,
the `ignored` names, texts that the `prompt` has or that it is `without`; of an error the `param`,
the `code` and what it `says`. Bodies of clients are shortened.
"""

import json
from pathlib import Path

import pytest
from asking import reached

from deployments.api.routes import IGNORED

LINES = Path(__file__).with_name("requests.jsonl").read_text().splitlines()
CASES = {case["name"]: case for case in map(json.loads, LINES)}
ERRORS = [name for name, case in CASES.items() if case.get("status", 200) != 200]
ANSWERED = CASES.keys() - ERRORS
FINISHED = {
    "/v1/chat/completions": ({"stop", "length", "tool_calls", "function_call"}, "[DONE]"),
    "/v1/responses": ({"completed", "incomplete"}, "response.completed response.incomplete"),
    "/v1/messages": ({"end_turn", "max_tokens", "tool_use", "stop_sequence"}, "message_stop"),
}


@pytest.mark.parametrize("knows", [False, True])
@pytest.mark.parametrize("name", sorted(ANSWERED))
async def test_a_request_is_answered(ingress, tools_ingress, name, knows):
    case, made = CASES[name], tools_ingress if knows else ingress
    seen = reached(made)
    response = await made.http.post(case["path"], json=case["body"])
    assert response.status_code == 200, response.text
    assert response.headers.get(IGNORED) == case.get("ignored")
    prompt = made.reader.tokenizers.own.decode(seen[0].prompt_token_ids)
    assert [text for text in case.get("prompt", ()) if text not in prompt] == []
    assert [text for text in case.get("without", ()) if text in prompt] == []
    reasons, last = FINISHED[case["path"]]
    if case["body"].get("stream"):
        *_, event = filter(None, response.text.split("\n\n"))
        assert any(one in event for one in last.split())
    else:
        said = response.json()
        ends = said.get("stop_reason") or said.get("status") or said["choices"][0]["finish_reason"]
        assert ends in reasons
        assert said["usage"]["speculative"]["method"]
        if "response_format" in case["body"] and ends == "stop":
            json.loads(said["choices"][0]["message"]["content"])


@pytest.mark.parametrize("name", ERRORS)
async def test_what_is_wrong_with_a_request_is_named(tools_ingress, name):
    case = CASES[name]
    response = await tools_ingress.http.post(case["path"], json=case["body"])
    assert response.status_code == case["status"], response.text
    error = response.json()["error"]
    param = case.get("param")
    if case["path"].startswith("/v1/messages"):
        assert error["message"].startswith(param or "")
    else:
        assert (error["param"], param is None or param in error["message"]) == (param, True)
        assert error["code"] == case.get("code", error["code"])
    assert case.get("says", "") in error["message"]
