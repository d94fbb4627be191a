"""Fields beyond OpenAI's first ones: vLLM's, and those that nobody knows."""

import json
import logging

import pytest
from asking import HELLO, events, posted

from deployments.api.input import parse
from deployments.api.request_bodies import ChatRequest
from deployments.api.routes import IGNORED, LONGEST_NAME, MOST_NAMES, listed

GREEDY = HELLO | {"model": "tiny:naive", "temperature": 0, "ignore_eos": True}
TEXT = {"model": "tiny:naive", "prompt": "hello", "max_tokens": 12, "temperature": 0}


def chat(**fields):
    return parse(ChatRequest, json.dumps(HELLO | fields).encode())


async def test_unknown_fields_are_ignored_and_named(ingress, caplog):
    caplog.set_level(logging.INFO)
    messages = [{"role": "user", "content": "hello", "cache_marks": {"type": "ephemeral"}}]
    asked = GREEDY | {"messages": messages, "temprature": 1, "a\nb": 2, "x": None}
    response = await ingress.http.post("/v1/chat/completions", json=asked)
    assert response.status_code == 200
    assert response.headers[IGNORED] == "a%0Ab, cache_marks, temprature"
    assert [r.message for r in caplog.records if "cache_marks" in r.message] == [
        "fields ignored on /v1/chat/completions: a%0Ab, cache_marks, temprature"
    ]
    plain = await ingress.http.post("/v1/chat/completions", json=GREEDY)
    assert IGNORED not in plain.headers
    assert plain.json()["choices"] == response.json()["choices"]
    for path, body in {
        "/v1/completions": TEXT | {"stream": True, "temprature": 1},
        "/v1/embeddings": {"model": "static-minilm", "input": "a", "temprature": 1},
        "/v1/routing/explain": {"prompt": "hello", "temprature": 1},
    }.items():
        response = await ingress.http.post(path, json=body)
        assert (response.status_code, response.headers[IGNORED]) == (200, "temprature")


async def test_strict_fields_refuses_them(ingress, monkeypatch):
    endpoints = {route.path: route.endpoint for route in ingress.app.routes}
    api = endpoints["/v1/models"].__self__
    http = ingress.config.http.model_copy(update={"strict_fields": True})
    monkeypatch.setattr(api, "config", ingress.config.model_copy(update={"http": http}))
    response = await ingress.http.post("/v1/chat/completions", json=HELLO | {"temprature": 1})
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "unknown_parameter")
    assert error["param"] == "temprature"


def test_names_in_a_header_are_bounded():
    assert listed(["b", "a"]) == "a, b"
    assert listed(["é" * 1000]) == "%C3%A9" * LONGEST_NAME
    many = listed(f"f{i:03}" for i in range(200))
    assert many.startswith("f000, ")
    assert many.endswith(", ...")
    assert many.count(",") == MOST_NAMES


async def test_ids_are_the_vocabularys(ingress):
    asked = HELLO | {"stop_token_ids": [2**31 - 1]}
    error = (await ingress.http.post("/v1/chat/completions", json=asked)).json()["error"]
    assert (error["param"], error["code"]) == ("stop_token_ids", "invalid_value")


@pytest.mark.parametrize(
    "fields",
    [
        {"top_k": -1},
        {"reasoning_effort": "high", "verbosity": "low", "store": True, "metadata": {"a": "b"}},
        {"service_tier": "auto", "safety_identifier": "x", "user": "y", "priority": -3},
        {"include_reasoning": True, "use_beam_search": False, "length_penalty": 1.0},
        {"bad_words": [], "documents": [], "vllm_xargs": {}, "request_id": "a"},
        {"chat_template_kwargs": {"enable_thinking": False}, "add_generation_prompt": True},
        {"skip_special_tokens": True, "include_stop_str_in_output": False, "stop_token_ids": []},
    ],
)
async def test_what_asks_for_nothing_changes_nothing(ingress, fields):
    plain = await posted(ingress, "/v1/chat/completions", GREEDY)
    response = await ingress.http.post("/v1/chat/completions", json=GREEDY | fields)
    assert response.status_code == 200, response.text
    assert response.json()["choices"] == plain["choices"]
    assert IGNORED not in response.headers


@pytest.mark.parametrize(
    ("fields", "kind", "text"),
    [
        ({"structured_outputs": {"json": {"type": "object"}}}, "json_schema", '{"type": "object"}'),
        ({"structured_outputs": {"json": "{}"}}, "json_schema", "{}"),
        ({"structured_outputs": {"regex": "a+"}}, "regex", "a+"),
        ({"structured_outputs": {"json_object": True}}, "json_object", ""),
        ({"structured_outputs": {"grammar": 'start: "a"'}}, "lark", 'start: "a"'),
        ({"structured_outputs": {"grammar": 'root ::= "a"'}}, "gbnf", 'root ::= "a"'),
        ({"guided_choice": ["a", 'b"']}, "lark", r'start: "a" | "b\""'),
        ({"guided_json": {"type": "object"}}, "json_schema", '{"type": "object"}'),
        ({"guided_grammar": 'root ::= "a"'}, "gbnf", 'root ::= "a"'),
    ],
)
def test_forms_of_vllm(fields, kind, text):
    grammar = chat(**fields).sampling(1, 100).grammar
    assert (grammar.kind, grammar.text) == (kind, text)


async def test_the_last_message_is_continued(ingress, tiny_bundle):
    """The prompt ends with its text, and not with the token that ends a message."""
    tokenizer = tiny_bundle.tokenizer()
    messages = [*HELLO["messages"], {"role": "assistant", "content": "The answer is"}]
    fields = {"messages": messages, "continue_final_message": True, "return_token_ids": True}
    body = await posted(ingress, "/v1/chat/completions", GREEDY | fields)
    assert tokenizer.decode(body["prompt_token_ids"]).endswith("The answer is")
    fields = {"add_generation_prompt": False, "return_token_ids": True}
    body = await posted(ingress, "/v1/chat/completions", GREEDY | fields)
    with_prompt = await posted(ingress, "/v1/chat/completions", GREEDY | {"return_token_ids": True})
    assert len(body["prompt_token_ids"]) < len(with_prompt["prompt_token_ids"])


async def test_token_ids_whole_and_streamed(ingress, tiny_bundle):
    for path, asked in {"chat/completions": GREEDY, "completions": TEXT}.items():
        asked = asked | {"return_token_ids": True}
        whole = await posted(ingress, f"/v1/{path}", asked)
        [choice] = whole["choices"]
        holder = whole if path.startswith("chat") else choice
        response = await ingress.http.post(f"/v1/{path}", json=asked | {"stream": True})
        pieces = [json.loads(piece) for piece in events(response)[:-1]]
        ids = [i for piece in pieces for i in piece["choices"][0].get("token_ids", [])]
        assert ids == choice["token_ids"]
        assert len(ids) == whole["usage"]["completion_tokens"]
        told = [p if path.startswith("chat") else p["choices"][0] for p in pieces]
        assert told[0]["prompt_token_ids"] == holder["prompt_token_ids"]
        assert not any("prompt_token_ids" in piece for piece in told[1:])
        assert len(holder["prompt_token_ids"]) == whole["usage"]["prompt_tokens"]
        said = choice.get("text", choice.get("message", {}).get("content"))
        assert tiny_bundle.tokenizer().decode(ids, skip_special_tokens=True) == said


def test_a_cache_key_is_a_scope_within_the_callers():
    keyed, salted = chat(prompt_cache_key="a"), chat(cache_salt="a")
    asked = ((keyed, None), (salted, None), (keyed, "law"), (chat(), "law"), (chat(), "a"))
    scopes = {request.cache_scope(adapter) for request, adapter in asked}
    assert len(scopes) == len(asked)
    assert chat().cache_scope(None) == ""
    assert chat(prompt_cache_key="a").cache_scope("law") == keyed.cache_scope("law")


async def test_other_cache_keys_find_no_prefix(ingress):
    prompt = "a long enough beginning of a prompt " * 3

    async def cached(**fields):
        body = await posted(ingress, "/v1/completions", TEXT | {"prompt": prompt} | fields)
        return body["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert await cached(prompt_cache_key="a") == 0
    assert await cached(prompt_cache_key="a") > 0
    assert await cached(prompt_cache_key="b") == 0


def test_a_request_may_lower_its_keys_priority_and_never_raise_it():
    assert chat(priority=1).most_urgent == chat(service_tier="flex").most_urgent == "low"
    assert chat(priority=-9).most_urgent == chat(service_tier="priority").most_urgent == "high"
