"""Conversations put so that a chat template writes all of them."""

import pytest

from deployments.api.tools.fields import FunctionTool
from deployments.api.tools.formats import FENCE
from deployments.api.tools.templates import fitted, traits_of
from workers.chat_template import encode_chat

WRITTEN = "{{ '<|' + message.role + '|>' + message.content | trim + '<|end|>' }}"
CHATML = "{% for message in messages %}" + WRITTEN + "{% endfor %}"
FIRST_SYSTEM = (
    "{% for message in messages %}{% if message.role == 'system' and not loop.first %}"
    "{{ raise_exception('system must be first') }}{% endif %}" + WRITTEN + "{% endfor %}"
)
DROPS_LATER = (
    "{% for message in messages %}{% if message.role != 'system' or loop.first %}"
    + WRITTEN
    + "{% endif %}{% endfor %}"
)
NO_SYSTEM = CHATML.replace(
    "{{ '<|'", "{% if message.role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ '<|'", 1
)
ALTERNATING = (
    "{% if messages[0].role == 'system' %}{% set rest = messages[1:] %}{{ messages[0].content }}"
    "{% else %}{% set rest = messages %}{% endif %}"
    "{% for message in rest %}{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}" + WRITTEN + "{% endfor %}"
)
TOOLS = (
    "{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}"
    "{% for message in messages %}{% if message.tool_calls %}<|assistant|>"
    "{% for call in message.tool_calls %}{{ call.function.name }}"
    "{% for name, given in call.function.arguments.items() %} {{ name }}={{ given }}{% endfor %}"
    "{% endfor %}<|end|>{% else %}" + WRITTEN + "{% endif %}{% endfor %}"
)
TEMPLATES = {
    "chatml": CHATML,
    "first system": FIRST_SYSTEM,
    "drops later": DROPS_LATER,
    "no system": NO_SYSTEM,
    "alternating": ALTERNATING,
    "tools": TOOLS,
}
CALL = {
    "id": "1",
    "type": "function",
    "function": {"name": "weather", "arguments": {"city": "Oslo"}},
}
CONVERSATION = [
    {"role": "system", "content": "first rules"},
    {"role": "system", "content": "second rules"},
    {"role": "user", "content": "one question"},
    {"role": "user", "content": "another question"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "1", "name": "weather", "content": "18 degrees"},
    {"role": "user", "content": "and then"},
    {"role": "assistant", "content": "an answer"},
    {"role": "assistant", "content": "its second part"},
    {"role": "system", "content": "later rules"},
    {"role": "user", "content": "the last question"},
]
PARAMETERS = {"type": "object", "properties": {}}
TOOL = FunctionTool.model_validate(
    {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
)


@pytest.fixture
def with_template(tiny_bundle):
    def made(template):
        tokenizer = tiny_bundle.tokenizer()
        tokenizer.chat_template = (
            template + "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
        )
        return tokenizer

    return made


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_writes_all_that_was_said(with_template, name):
    tokenizer = with_template(TEMPLATES[name])
    traits = traits_of(tokenizer)
    tools = [] if traits.tools else [TOOL]
    messages = fitted(CONVERSATION, tools, traits, FENCE)
    variables = {"tools": [TOOL.for_template()]} if traits.tools else {}
    written = tokenizer.decode(encode_chat(tokenizer, messages, True, variables=variables))
    for message in CONVERSATION:
        assert message["content"] in written
    assert written.count("weather") > 1
    assert "Oslo" in written
    assert traits.tools == traits.calls == (name == "tools")


def test_what_a_template_writes_is_left_as_it_is(with_template):
    plain = [message for message in CONVERSATION if message["role"] != "tool"][:4]
    assert fitted(plain, (), traits_of(with_template(CHATML)), FENCE) == plain


def test_later_system_messages_go_into_the_first(with_template):
    said = fitted(CONVERSATION, (), traits_of(with_template(FIRST_SYSTEM)), FENCE)
    assert said[0] == {"role": "system", "content": "first rules\n\nsecond rules\n\nlater rules"}
    assert [message["role"] for message in said].count("system") == 1
    said = fitted(CONVERSATION, (), traits_of(with_template(NO_SYSTEM)), FENCE)
    assert said[0]["role"] == "user"
    assert said[0]["content"].startswith("first rules\n\nsecond rules\n\nlater rules\n\none")
