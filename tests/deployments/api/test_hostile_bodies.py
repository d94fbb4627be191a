"""Bodies that are meant to harm: whatever JSON is where, and as much of it as fits."""

import json

import pytest
from asking import HELLO

from deployments.api.embeddings import EmbeddingRequest
from deployments.api.generation import Decoding, GenerationRequest
from deployments.api.input import MAX_CONTAINERS, MAX_VALUES, parse, validated
from deployments.api.request_bodies import ChatRequest, CompletionRequest
from deployments.api.responses_and_messages.messages import CountRequest
from deployments.api.responses_and_messages.responses import ResponsesRequest
from deployments.errors import ApiError

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def encoded(body):
    return json.dumps(body).encode()


# No JSON, wherever it is: none of it reaches a field.
NO_JSON = ["NaN", "Infinity", "-Infinity", "01", r'"\x"', '"\t"']
# JSON that other servers fail over, as it is written in a body.
HOSTILE = [
    *("9223372036854775808", "-9223372036854775809", str(2**70), "9" * 4300, "9" * 5000),
    *("1e400", "-1e400", "1e-400", "-0", "-0.0", "1.0", "1e2", "true", "null"),
    *['""', "[]", "{}", "[[]]", "[null]", '[""]', "[{}]", "[true]"],
    *[r'"\ud800"', r'"a\udfff"', r'"\u0000"', '"\ufeff"', '"\U0010ffff"'],
    *("[" * 150 + "]" * 150, "[" * 900 + "]" * 900, '{"a":' * 150 + "1" + "}" * 150),
    '{"role": "user", "role": "nobody"}',
    r'[{"role": "user", "content": [{"type": "text", "text": "\ud83d"}]}]',
]
TOOL_USE = {"type": "tool_use", "id": "1", "name": "f", "input": {}}
TINY = {"model": "tiny", "max_tokens": 2}
BODIES = {
    "/v1/chat/completions": HELLO
    | {"max_tokens": 2, "response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
    "/v1/completions": TINY | {"prompt": "hello", "grammar": {"kind": "regex", "text": "a+"}},
    "/v1/responses": {
        "model": "tiny",
        "input": [
            {"role": "user", "content": "hello"},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "x"},
        ],
        "max_output_tokens": 2,
        "tools": [{"type": "function", "name": "f", "parameters": {}}],
        "tool_choice": "none",
        "text": {"format": {"type": "text"}},
    },
    "/v1/messages": {
        "model": "tiny",
        "messages": [
            *HELLO["messages"],
            {"role": "assistant", "content": [TOOL_USE]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1"}]},
        ],
        "max_tokens": 2,
        "tools": [{"name": "f", "input_schema": {}}],
        "tool_choice": {"type": "none"},
    },
    "/v1/embeddings": {"model": "static-minilm", "input": ["a"]},
    "/tokenize": {"messages": HELLO["messages"]},
    "/detokenize": {"tokens": [5]},
    "/v1/routing/explain": {"messages": HELLO["messages"]},
    "/admin/routing/rollback": {},
}


def places(body, fields):
    """The body's JSON with a gap at each of the fields, and at each value inside them."""
    for field in fields:
        yield json.dumps(body | {field: "<gap>"})
        value = body.get(field)
        for key in value if isinstance(value, dict) else ():
            yield json.dumps(body | {field: value | {key: "<gap>"}})
        for index, item in enumerate(value if isinstance(value, list) else ()):
            yield json.dumps(body | {field: [*value[:index], "<gap>", *value[index + 1 :]]})
            for key in item if isinstance(item, dict) else ():
                inside = [*value[:index], item | {key: "<gap>"}, *value[index + 1 :]]
                yield json.dumps(body | {field: inside})


LONGER = {"/v1/completions", "/v1/messages", "/v1/responses"}


@pytest.mark.parametrize(
    "path", [pytest.param(p, marks=[pytest.mark.slow] if p in LONGER else []) for p in BODIES]
)
async def test_no_value_of_any_field_is_a_failure_of_the_service(ingress, path):
    """Whatever JSON is where: an answer or an error that says why, never a 500."""
    operation = (await ingress.http.get("/openapi.json")).json()["paths"][path]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    fields = [*schema["properties"], "unheard_of"]
    if path == "/v1/completions":  # the rest is tried in a conversation
        fields = [field for field in fields if field not in GenerationRequest.model_fields]
    if path in ("/v1/responses", "/v1/messages"):
        fields = [field for field in fields if field not in Decoding.model_fields]
    for number, gap in enumerate(places(BODIES[path], fields)):
        for value in HOSTILE if number else (*HOSTILE, *NO_JSON):
            body = gap.replace('"<gap>"', value).encode()
            response = await ingress.http.post(path, content=body)
            assert response.status_code in (200, 400, 404), (body[:300], response.text[:300])
            if response.status_code != 200:
                assert response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("field", "low", "high"), [("seed", -(2**63), 2**63 - 1), ("top_k", -1, 2**31 - 1)]
)
def test_whole_numbers_fit_the_engines(field, low, high):
    for value in (low, high):
        assert getattr(parse(ChatRequest, encoded(CHAT | {field: value})), field) == value
    for value in (low - 1, high + 1, 2**70, -(2**70), True, 1e300):
        with pytest.raises(ApiError) as caught:
            parse(ChatRequest, encoded(CHAT | {field: value}))
        assert (caught.value.param, caught.value.code) == (field, "invalid_value")


MANY = 100_000
PART = {"type": "text", "text": ""}
CALL = {"id": "1", "function": {"name": "f", "arguments": ""}}
RESULT = {"type": "tool_result", "tool_use_id": "1", "content": [PART] * MANY}
OUTPUT = {"type": "function_call_output", "call_id": "1"}
OUTPUT |= {"output": [PART | {"type": "input_text"}] * MANY}
MANY_PARTS = {"role": "user", "content": [{"type": 1}] * MANY}
MANY_CALLS = [{"role": "assistant", "tool_calls": [CALL] * 200}] * 100
MANY_FIELDS = {f"f{i}": 1 for i in range(MANY)}
PREDICTION = {"type": "content", "content": [PART] * MANY}
CROWDS = {
    "messages": (ChatRequest, {"messages": [1] * MANY}, "messages"),
    "good messages": (ChatRequest, {"messages": CHAT["messages"] * MANY}, "messages"),
    "parts": (ChatRequest, {"messages": [MANY_PARTS]}, "messages"),
    "calls": (ChatRequest, {"messages": MANY_CALLS}, "messages"),
    "a prediction's parts": (ChatRequest, {"prediction": PREDICTION}, "prediction.content"),
    "results": (CountRequest, {"messages": [{"role": "user", "content": [RESULT]}]}, "messages"),
    "outputs": (ResponsesRequest, {"input": [OUTPUT]}, "input"),
    "stops": (ChatRequest, {"stop": [1] * MANY}, "stop[0]"),
    "biases": (ChatRequest, {"logit_bias": MANY_FIELDS}, "logit_bias"),
    "fields": (ChatRequest, MANY_FIELDS, None),
    "a message's fields": (ChatRequest, {"messages": [MANY_FIELDS]}, "messages[0]"),
    "tokens": (CompletionRequest, {"prompt": [1, *["a"] * MANY]}, "prompt[1]"),
    "prompts": (CompletionRequest, {"prompt": ["a", *[1] * MANY]}, "prompt[1]"),
    "lists of tokens": (CompletionRequest, {"prompt": [["a"] * MANY]}, "prompt[0][0]"),
    "texts": (EmbeddingRequest, {"input": [None] * MANY}, "input[0]"),
}


@pytest.mark.parametrize("case", CROWDS)
def test_the_first_error_of_many_is_enough(case):
    """All of them would take seconds and a gigabyte."""
    kind, fields, param = CROWDS[case]
    asked = {"prompt": "a"} if kind is CompletionRequest else {"messages": CHAT["messages"]}
    if kind in (EmbeddingRequest, ResponsesRequest):
        asked = {}
    with pytest.raises(ApiError) as caught:
        validated(kind, {"model": "m"} | asked | fields)
    error = caught.value
    assert error.status == 400
    assert error.__cause__.error_count() < 300
    assert (error.param or "").startswith(param or "")


def body_with(value):
    return encoded(CHAT)[:-1] + b', "chat_template_kwargs": {"a": ' + value + b"}}"


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (b"[" + b"[]," * MAX_CONTAINERS + b"[]]", "objects and lists"),
        (b"[" + b'{"a":{}},' * (MAX_CONTAINERS // 2) + b"[]]", "objects and lists"),
        (b"[" + b"1," * MAX_VALUES + b"1]", "values"),
        (b'{"a":1' + b',"a":1' * MAX_VALUES + b"}", "values"),
        (b"[" * MAX_CONTAINERS, "objects and lists"),
    ],
)
def test_a_body_is_refused_before_its_containers_are_read(value, what, monkeypatch):
    """Wherever they are. To read a million of them takes seconds, in which nobody is answered."""
    monkeypatch.setattr("pydantic_core.from_json", None)
    for kind in (ChatRequest, ResponsesRequest, CountRequest, CompletionRequest):
        with pytest.raises(ApiError, match=what) as caught:
            parse(kind, body_with(value))
        assert (caught.value.status, caught.value.code) == (400, "invalid_value")


@pytest.mark.parametrize(
    "text", ["[{" * MAX_CONTAINERS, '\\"[{,' * MAX_VALUES, '\\[{,"' * MAX_VALUES]
)
def test_braces_in_texts_are_no_containers(text):
    asked = parse(ChatRequest, encoded(CHAT | {"messages": [{"role": "user", "content": text}]}))
    assert asked.messages[0].content == text


async def test_containers_in_the_arguments_of_calls_count_too(tools_ingress):
    """They are text in the body, and JSON for the chat template."""
    call = {"id": "1", "function": {"name": "f", "arguments": json.dumps({"a": [[]] * 20_000})}}
    messages = [*HELLO["messages"], {"role": "assistant", "tool_calls": [call, call]}]
    response = await tools_ingress.http.post(
        "/v1/chat/completions", json=HELLO | {"messages": messages}
    )
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("arguments of tool_calls: at most 32768")
