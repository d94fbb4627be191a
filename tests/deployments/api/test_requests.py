"""What the OpenAI endpoints accept, and which error names what they do not."""

import json

import pytest

from deployments.api.input import parse
from deployments.api.messages import plain_messages
from deployments.api.request_bodies import ChatRequest, CompletionRequest, ExplainRequest
from deployments.errors import ApiError

HELLO = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def chat(**fields):
    return parse(ChatRequest, json.dumps(HELLO | fields).encode())


def refusal(kind, body):
    with pytest.raises(ApiError) as caught:
        parse(kind, body if isinstance(body, bytes) else json.dumps(body).encode())
    return caught.value


def test_defaults_are_openais():
    sampling = chat().sampling(prompt_tokens=10, context_length=1000)
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens) == (1.0, 1.0, 990)
    assert completion("a").sampling(10, 1000).max_tokens == 16


def test_a_bundles_defaults_are_for_what_is_left_open():
    advised = {"temperature": 0.2, "top_p": 0.9}

    def sampled(**fields):
        asked = parse(ChatRequest, json.dumps(HELLO | fields).encode(), advised)
        sampling = asked.sampling(10, 1000)
        return sampling.temperature, sampling.top_p

    assert sampled() == sampled(temperature=None) == (0.2, 0.9)
    assert sampled(temperature=0) == (0.0, 0.9)
    assert sampled(temperature=1, top_p=1) == (1.0, 1.0)
    explained = parse(ExplainRequest, b'{"prompt": "a"}', advised)
    assert explained.temperature == 0.2


@pytest.mark.parametrize("fields", [{"max_tokens": 11}, {"max_completion_tokens": 11}])
def test_more_tokens_than_the_context_has_left_is_an_error(fields):
    with pytest.raises(ApiError) as caught:
        chat(**fields).sampling(prompt_tokens=990, context_length=1000)
    assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")
    assert caught.value.param == "messages"
    assert "1000" in caught.value.message


def test_everything_asked_for_reaches_the_sampling():
    same = {"top_p": 0.5, "top_k": 7, "min_p": 0.1, "seed": 3, "max_tokens": 9, "min_tokens": 2}
    same |= {"presence_penalty": 0.5, "frequency_penalty": -1, "repetition_penalty": 1.2}
    same |= {"ignore_eos": True, "include_stop_str_in_output": True, "skip_special_tokens": False}
    asked = {"temperature": 0, "logit_bias": {"12": -3}, "logprobs": True, "top_logprobs": 4}
    asked |= {"stop": "\n", "stop_token_ids": [5]}
    made = {"temperature": 0.0, "logit_bias": {12: -3.0}, "logprobs": 4, "prompt_logprobs": None}
    made |= {"stop": ("\n",), "stop_token_ids": (5,), "grammar": None}
    assert chat(**same, **asked).sampling(1, 100).model_dump() == same | made


def form(**schema):
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def test_one_grammar_whatever_asks_for_it():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    asked = chat(**form(name="a", schema=schema, strict=True)).sampling(1, 100).grammar
    assert (asked.kind, json.loads(asked.text)) == ("json_schema", schema)
    asked = chat(response_format={"type": "json_object"}).sampling(1, 100).grammar
    assert (asked.kind, asked.text) == ("json_object", "")
    asked = chat(grammar={"kind": "regex", "text": "a+"}).sampling(1, 100).grammar
    assert (asked.kind, asked.text) == ("regex", "a+")
    assert chat(response_format={"type": "text"}).sampling(1, 100).grammar is None


def test_how_many_log_probabilities():
    assert chat().sampling(1, 100).logprobs is None
    assert chat(logprobs=True).sampling(1, 100).logprobs == 0
    with pytest.raises(ApiError) as caught:
        chat(top_logprobs=2).sampling(1, 100)
    assert caught.value.param == "top_logprobs"
    assert completion("a", logprobs=5).sampling(1, 100).logprobs == 5
    with pytest.raises(ApiError):
        completion("a", logprobs=6)


def test_text_parts_are_joined():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    [message] = plain_messages(chat(messages=[{"role": "user", "content": parts}]).messages)
    assert message == {"role": "user", "content": "ab"}


def said(**message):
    return {"messages": [message]}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temprature": 1}, "temprature"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        (said(role="user", content=[{"type": "image_url"}]), "messages[0].content[0].type"),
        (said(role="assistant", tool_calls=[{"type": "mcp"}]), "messages[0].tool_calls[0].type"),
    ],
)
def test_what_is_otherwise_left_out_is_refused_where_fields_are_strict(fields, param):
    error = refusal(ChatRequest, HELLO | fields)
    assert (error.status, error.param) == (400, param)
    assert error.code.startswith("un")
    assert param in error.message


@pytest.mark.parametrize("arguments", [r'{"a": "\ud800"}', '{"a":' * 700])
def test_arguments_are_read_as_strictly_as_the_body(arguments):
    call = {"id": "1", "function": {"name": "f", "arguments": arguments}}
    error = refusal(ChatRequest, HELLO | said(role="assistant", tool_calls=[call]))
    assert error.param == "messages[0].tool_calls[0].function.arguments"


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant"])
def test_a_message_has_content_that_may_be_empty(role):
    if role != "assistant":
        error = refusal(ChatRequest, HELLO | {"messages": [{"role": role}]})
        assert (error.param, error.code) == ("messages[0].content", "missing_required_parameter")
    for content in (None, [], ""):
        [message] = chat(messages=[{"role": role, "content": content}]).messages
        assert message.plain()["content"] == ""


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"nonsense", b'{"a": NaN}', b'"text"', b"\xff", b"[" * 30_000]
)
def test_what_is_not_a_json_object_is_refused(body):
    assert refusal(ChatRequest, body).code == "invalid_json"


@pytest.mark.parametrize(
    "body", [{}, {"prompt": "a", "messages": HELLO["messages"]}, {"messages": []}]
)
def test_a_routing_question_has_one_prompt(body):
    with pytest.raises(ApiError):
        parse(ExplainRequest, json.dumps(body).encode()).chat_messages()


def completion(prompt, **fields):
    body = json.dumps({"model": "m", "prompt": prompt} | fields).encode()
    return parse(CompletionRequest, body)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("a b", {"prompt": "a b"}),
        ([1, 2], {"prompt": [1, 2]}),
        (["a b"], {"prompt[0]": "a b"}),
        (["a", "b"], {"prompt[0]": "a", "prompt[1]": "b"}),
        ([[1, 2], [3]], {"prompt[0]": [1, 2], "prompt[1]": [3]}),
    ],
)
def test_prompts_in_any_of_their_forms(prompt, expected):
    assert completion(prompt).prompts() == expected


def test_a_request_has_so_many_answers():
    assert len(completion(["a"] * 16, n=4).prompts()) == 16
    with pytest.raises(ApiError, match=r"17 prompts with n 4 ask for 68 answers") as caught:
        completion(["a"] * 17, n=4).prompts()
    assert caught.value.param == "prompt"


def test_a_prompt_may_be_read_and_not_answered():
    assert completion("a", max_tokens=0).sampling(1, 100).max_tokens == 1
    with pytest.raises(ApiError) as caught:
        completion("a", max_tokens=0, min_tokens=1).sampling(1, 100)
    assert caught.value.param == "min_tokens"
