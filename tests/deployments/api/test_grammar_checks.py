"""Grammars are checked in helper processes: whatever becomes of those, others are answered."""

import asyncio
import json
import os
import signal

import pytest
from asking import HELLO, posted, until

from deployments.api import grammar_checks
from deployments.api.grammar_checks import GrammarChecks, helper_arguments

FIELD = "response_format.json_schema.schema"
LONG = HELLO | {"messages": [{"role": "user", "content": "the sea and the mountains " * 40}]}
DEEP = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(2500)} | {"d2500": {}}


def form(schema):
    wrapped = {"name": "answer", "schema": schema}
    return HELLO | {"response_format": {"type": "json_schema", "json_schema": wrapped}}


def given(text, kind="regex"):
    return HELLO | {"max_tokens": 40, "grammar": {"kind": kind, "text": text}}


async def post(ingress, asked):
    return await ingress.http.post("/v1/chat/completions", json=asked)


@pytest.fixture
def checks(ingress, tiny_bundle, monkeypatch):
    """The reader's checks, with helpers of the test's own."""
    made = GrammarChecks(helper_arguments(tiny_bundle, tiny_bundle.tokenizer()))
    monkeypatch.setattr(ingress.reader, "_grammars", made)
    yield made
    for pid in pids(made):
        os.kill(pid, signal.SIGCONT)
        os.kill(pid, signal.SIGKILL)


def pids(checks):
    processes = [helper._process for helper in checks._helpers]
    return [process.pid for process in processes if process is not None]


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        (form({"$defs": DEEP, "$ref": "#/$defs/d0"}), FIELD),
        (form({"$ref": "#"}), FIELD),
        (form({"enum": [f"{i:08}" for i in range(100_000)]}), FIELD),
        (form({"type": "integer", "minimum": 10**400, "maximum": 10**401}), FIELD),
        (form({"type": "objekt"}), FIELD),
        (form({"unevaluatedItems": False}), FIELD),
        (given("[a"), "grammar.text"),
        (given("start: nothing", "lark"), "grammar.text"),
        (given("{", "json_schema"), "grammar.text"),
        (given(r"[^\s\S]"), "grammar.text"),
        (given('start: "a" start', "lark"), "grammar.text"),
        (given("[" * 100_000, "json_schema"), "grammar.text"),
        (given('{"minimum": ' + "9" * 5000 + "}", "json_schema"), "grammar.text"),
    ],
)
async def test_what_cannot_be_followed_is_a_400_that_names_the_field(ingress, asked, param):
    response = await post(ingress, asked)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
    assert set(ingress.answerer.circuits.states().values()) == {"closed"}


async def test_bodies_that_are_nested_too_deeply_are_a_400(ingress):
    for inner in ('{"a":' * 50_000 + "1" + "}" * 50_000, "[" * 100_000, "9" * 10_000):
        body = json.dumps(form("HERE")).replace('"HERE"', inner)
        response = await ingress.http.post("/v1/chat/completions", content=body)
        assert response.status_code == 400


async def test_plain_prompts_do_not_wait_for_grammars(ingress, checks):
    """Every helper is stopped in the middle of a grammar; long prompts are answered meanwhile."""
    await posted(ingress, "/v1/chat/completions", given("a{3}"))
    for helper in checks._helpers:
        helper._process = helper._process or helper._started()
        os.kill(helper._process.pid, signal.SIGSTOP)
    waiting = [asyncio.create_task(post(ingress, given(f"b{{{i}}}"))) for i in range(1, 9)]
    await until(lambda: len(checks._under_way) == 8)
    for _ in range(3):
        await posted(ingress, "/v1/chat/completions", LONG)
    known = await post(ingress, given("a{3}"))
    assert known.status_code == 200
    assert not any(task.done() for task in waiting)
    for pid in pids(checks):
        os.kill(pid, signal.SIGCONT)
    assert {response.status_code for response in await asyncio.gather(*waiting)} == {200}


async def test_too_many_of_a_caller_are_a_429(ingress, checks, monkeypatch):
    monkeypatch.setattr(checks._threads, "_most", 1)
    for helper in checks._helpers:
        helper._process = helper._started()
        os.kill(helper._process.pid, signal.SIGSTOP)
    first = [asyncio.create_task(post(ingress, given(text))) for text in ("b", "b", "d", "d")]
    await until(lambda: len(checks._under_way) == 2)
    response = await post(ingress, given("c"))
    assert response.status_code == 429
    assert response.headers["retry-after"] == "1"
    for pid in pids(checks):
        os.kill(pid, signal.SIGCONT)
    assert {response.status_code for response in await asyncio.gather(*first)} == {200}


async def test_a_helper_that_has_died_is_replaced(ingress, checks):
    await posted(ingress, "/v1/chat/completions", given("a{3}"))
    dead = pids(checks)
    for pid in dead:
        os.kill(pid, signal.SIGKILL)
    for text in ("b", "c", "d"):
        await posted(ingress, "/v1/chat/completions", given(text))
    assert pids(checks)
    assert not set(pids(checks)) & set(dead)


async def test_a_helper_that_does_not_answer_is_replaced(ingress, checks, monkeypatch):
    await posted(ingress, "/v1/chat/completions", given("a{3}"))
    monkeypatch.setattr(grammar_checks, "PATIENCE_SECONDS", 0.5)
    [stopped] = pids(checks)
    os.kill(stopped, signal.SIGSTOP)
    helper = next(h for h in checks._helpers if h._process is not None)
    line = b'{"kind": "regex", "text": "b"}\n'
    assert await asyncio.to_thread(helper._asked, helper._process, line) == b""
    monkeypatch.undo()


async def test_helpers_that_cannot_start_are_a_503(ingress, monkeypatch, tmp_path):
    made = GrammarChecks([str(tmp_path / "missing.json"), "300", "1"])
    monkeypatch.setattr(ingress.reader, "_grammars", made)
    response = await post(ingress, given("a"))
    assert response.status_code == 503
    await posted(ingress, "/v1/chat/completions", HELLO)
