"""Reasoning between a template's think tags, apart from the answer."""

import json

import pytest
from asking import HELLO, events, posted, reached, recorded
from service_here import ingress_here

from deployments.api.prompt_reader import PromptReader

TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: "
    "{% if enable_thinking %}<think>\n{% endif %}{% endif %}"
    "{# An earlier answer's thoughts end with </think>. #}"
)
THOUGHT = "<think>\nTwo and two, 2 < 3.\n</think>\n\nIt is 4."
ANSWER = {"reasoning_content": "Two and two, 2 < 3.", "content": "It is 4."}
NOTHING = {"role": "assistant", "refusal": None}


@pytest.fixture
async def thinking(config, engine, encoder, tiny_bundle, tmp_path):
    """An ingress whose chat template has think tags."""
    file = tmp_path / "thinking.jinja"
    file.write_text(TEMPLATE)
    http = config.http.model_copy(update={"chat_template": file})
    methods = [method.name for method in config.methods]
    reader = PromptReader(tiny_bundle, methods, config.engine, http)
    made = await ingress_here(config, engine, encoder, reader)
    async with made.http:
        yield made


async def answered(ingress, **fields):
    """The message, whole and streamed."""
    body = await posted(ingress, "/v1/chat/completions", HELLO | fields)
    response = await ingress.http.post(
        "/v1/chat/completions", json=HELLO | {"stream": True} | fields
    )
    deltas = [json.loads(piece)["choices"][0]["delta"] for piece in events(response)[:-1]]
    streamed = {
        name: "".join(delta.get(name) or "" for delta in deltas)
        for name in ("reasoning_content", "content")
    }
    message = body["choices"][0]["message"]
    assert message.get("reasoning_content", "") == streamed["reasoning_content"]
    assert message["content"] == streamed["content"]
    return message


async def test_it_is_apart_whole_and_streamed(thinking):
    recorded(thinking, THOUGHT)
    assert await answered(thinking) == NOTHING | ANSWER
    assert await answered(thinking, include_reasoning=False) == NOTHING | {"content": "It is 4."}


async def test_a_prompt_may_open_it(thinking):
    recorded(thinking, THOUGHT.removeprefix("<think>\n"))
    for fields in (
        {"reasoning_effort": "low"},
        {"chat_template_kwargs": {"enable_thinking": True}},
    ):
        assert await answered(thinking, **fields) == NOTHING | ANSWER
    plain = await answered(thinking)
    assert plain == NOTHING | {"content": THOUGHT.removeprefix("<think>\n")}
    begun = {"role": "assistant", "content": "<think>Well, "}
    goes_on = {"messages": [*HELLO["messages"], begun], "continue_final_message": True}
    assert await answered(thinking, **goes_on) == NOTHING | ANSWER


async def test_a_grammar_leaves_no_room_for_it(thinking):
    recorded(thinking, '{"a": 1}')
    form = {"response_format": {"type": "json_object"}, "reasoning_effort": "low"}
    assert await answered(thinking, **form) == NOTHING | {"content": '{"a": 1}'}


async def test_without_tags_in_the_template_all_is_content(ingress):
    recorded(ingress, THOUGHT)
    assert await answered(ingress) == NOTHING | {"content": THOUGHT}


async def test_its_tokens_are_counted_with_its_tags(thinking):
    recorded(thinking, THOUGHT)
    expected = len(THOUGHT.partition("</think>")[0]) + len("</think>")
    for stream in (False, True):
        asked = HELLO | {"stream": stream, "stream_options": {"include_usage": True}}
        response = await thinking.http.post("/v1/chat/completions", json=asked)
        body = json.loads(events(response)[-2]) if stream else response.json()
        details = body["usage"]["completion_tokens_details"]
        assert details["reasoning_tokens"] == expected
    answer = await posted(thinking, "/v1/responses", {"model": "tiny", "input": "hello"})
    assert answer["usage"]["output_tokens_details"]["reasoning_tokens"] == expected


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
async def test_a_template_that_writes_it_gets_it(ingress, monkeypatch, path):
    tokenizer = ingress.reader.tokenizers.own
    writes = "{% for m in messages %}{{ m.reasoning_content }}{{ m.content }}{% endfor %}"
    monkeypatch.setattr(tokenizer, "chat_template", writes)
    thought, user = "I have thought", {"role": "user", "content": "hello"}
    said = {
        "/v1/chat/completions": {"role": "assistant", "content": "a", "reasoning_content": thought},
        "/v1/responses": {
            "type": "reasoning",
            "content": [{"type": "reasoning_text", "text": thought}],
        },
        "/v1/messages": {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": thought, "signature": ""}],
        },
    }[path]
    field = "input" if path == "/v1/responses" else "messages"
    seen = reached(ingress)
    most = "max_output_tokens" if field == "input" else "max_tokens"
    await posted(ingress, path, {"model": "tiny", field: [user, said, user], most: 2})
    assert thought in tokenizer.decode(seen[0].prompt_token_ids)
