"""Tool calls in answers, written down from the documentation of each model family."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api.tools.formats import FENCE, HERMES, LLAMA3, MISTRAL, Format, format_of
from deployments.api.tools.parser import (
    MOST_AGAIN,
    Arguments,
    CallBroken,
    CallStart,
    Text,
    ToolCallParser,
    calls_in,
    settled,
)

OFFERED = ("get_current_temperature", "get_temperature_date", "trending_songs", "get_weather")


def parsed(form, parts, **more):
    """Return the pieces of an answer that comes in parts."""
    parser, pieces = ToolCallParser(form, OFFERED, **more), []
    for part in parts:
        pieces += parser.push(part)
    return [*pieces, *parser.end()]


def joined(pieces):
    """Return the text, and each call's name and arguments."""
    whole = settled(pieces)
    calls = [(call.name, json.loads(call.arguments)) for call in calls_in(whole)]
    return "".join(piece.text for piece in whole if isinstance(piece, Text)), calls


PARIS = {"location": "Paris, France", "unit": "celsius"}
SAN_FRANCISCO = {"location": "San Francisco, CA, USA"}

# format, answer, calls
CALLS = {
    # qwen.readthedocs.io, Function Calling; the same in Qwen3's chat template
    "Qwen 2.5": (
        HERMES,
        '<tool_call>\n{"name": "get_current_temperature", "arguments": {"location": "San '
        'Francisco, CA, USA"}}\n</tool_call>\n<tool_call>\n{"name": "get_temperature_date", '
        '"arguments": {"location": "San Francisco, CA, USA", "date": "2024-10-01"}}\n</tool_call>',
        [
            ("get_current_temperature", SAN_FRANCISCO),
            ("get_temperature_date", SAN_FRANCISCO | {"date": "2024-10-01"}),
        ],
    ),
    # NousResearch/Hermes-2-Pro-Llama-3-8B, model card: the arguments come first
    "Hermes 2 Pro": (
        HERMES,
        '<tool_call>\n{"arguments": {"symbol": "TSLA"}, "name": "get_stock_fundamentals"}\n'
        "</tool_call>",
        [("get_stock_fundamentals", {"symbol": "TSLA"})],
    ),
    # HuggingFaceTB/SmolLM2-1.7B-Instruct, instructions_function_calling.md: a list in the tags
    "SmolLM2": (
        HERMES,
        '<tool_call>[{"name": "get_random_number_between", "arguments": {"min": 1, "max": 300}}]'
        "</tool_call>",
        [("get_random_number_between", {"min": 1, "max": 300})],
    ),
    # meta-llama/llama-models, models/llama3_1/prompt_format.md, JSON based tool calling
    "Llama 3.1": (
        LLAMA3,
        '{"type": "function", "name": "trending_songs", "parameters": {"n": "10", "genre": "all"}}',
        [("trending_songs", {"n": "10", "genre": "all"})],
    ),
    "Llama 3.1 with its tag": (
        LLAMA3,
        '<|python_tag|>{"name": "get_stock", "parameters": {"symbol": "META"}}; '
        '{"name": "get_weather", "parameters": {}}',
        [("get_stock", {"symbol": "META"}), ("get_weather", {})],
    ),
    # huggingface.co/docs, Mistral-7B-Instruct-v0.3 chat template's example
    "Mistral v3": (
        MISTRAL,
        '[TOOL_CALLS] [{"name": "get_current_temperature", "arguments": {"location": "Paris, '
        'France", "unit": "celsius"}, "id": "abcdef123"}]',
        [("get_current_temperature", PARIS)],
    ),
    "Mistral v3, two calls": (
        MISTRAL,
        '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 3.5, "b": 4}}, {"name": "get_weather", '
        '"arguments": {"city": "[TOOL_CALLS] ]}"}}]',
        [("add", {"a": 3.5, "b": 4}), ("get_weather", {"city": "[TOOL_CALLS] ]}"})],
    ),
    # mistral-common, tokenizers v11 and v13
    "Mistral v13": (
        MISTRAL,
        '[TOOL_CALLS]get_weather[ARGS]{"city": "Tokyo"}',
        [("get_weather", {"city": "Tokyo"})],
    ),
    "Mistral v11 with an id": (
        MISTRAL,
        '[TOOL_CALLS]get_weather[CALL_ID]Xy12Ab34c[ARGS]{"city": "Tokyo"}',
        [("get_weather", {"city": "Tokyo"})],
    ),
    "arguments as text": (
        HERMES,
        r'<tool_call>{"name": "f", "arguments": "{\"a\": [1, \"}\"]}"}</tool_call>',
        [("f", {"a": [1, "}"]})],
    ),
    "no arguments": (HERMES, '<tool_call>{"name": "f"}</tool_call>', [("f", {})]),
    "the end is missing": (
        HERMES,
        '<tool_call>{"name": "f", "arguments": {"a": "</tool_call>"}}',
        [("f", {"a": "</tool_call>"})],
    ),
}
# format, answer, text, calls
ANSWERS = {name: (form, answer, "", calls) for name, (form, answer, calls) in CALLS.items()} | {
    "Qwen 2.5 with text": (
        HERMES,
        'Let me look that up.\n<tool_call>\n{"name": "get_current_temperature", "arguments": '
        '{"location": "Zürich"}}\n</tool_call>',
        "Let me look that up.",
        [("get_current_temperature", {"location": "Zürich"})],
    ),
    "Mistral v11": (
        MISTRAL,
        'One moment. [TOOL_CALLS]add{"a": 2, "b": 3}[TOOL_CALLS]get_weather{"city": "Oslo"}',
        "One moment.",
        [("add", {"a": 2, "b": 3}), ("get_weather", {"city": "Oslo"})],
    ),
    "a fence": (
        FENCE,
        'I will call the tool:\n```json\n{\n  "name": "get_weather",\n  "arguments": {"city": '
        '"Rome"}\n}\n```\nThen I will answer.',
        "I will call the tool:\nThen I will answer.",
        [("get_weather", {"city": "Rome"})],
    ),
    "a list that ends too early": (
        MISTRAL,
        '[TOOL_CALLS] [{"name": "f", "arguments": {}}, {"na',
        '{"na',
        [("f", {})],
    ),
    "a call behind what is none": (
        HERMES,
        '<tool_call> <tool_call>{"name": "f"}</tool_call>',
        "<tool_call>",
        [("f", {})],
    ),
}
TEXTS = {
    "a fence with other JSON": (FENCE, 'So:\n```json\n{"name": "Ada", "age": 36}\n```\n'),
    "JSON for another name": (LLAMA3, '{"name": "Ada", "parameters": {}}'),
    "the arguments end": (HERMES, 'x\n<tool_call>{"name": "f", "arguments": {"a": [1, {"b":'),
    "no JSON": (HERMES, '<tool_call>{"name": "f", "arguments": {a: 1}}</tool_call>'),
    "no call": (HERMES, "a < b \n\n <tool_call is not one\n"),
}
ANSWERS |= {name: (form, text, text, []) for name, (form, text) in TEXTS.items()}


@pytest.mark.parametrize("case", ANSWERS)
def test_answers_as_documented(case):
    form, answer, text, calls = ANSWERS[case]
    whole = joined(parsed(form, [answer]))
    assert whole == (text, calls)
    for cut in range(1, len(answer)):
        assert joined(parsed(form, [answer[:cut], answer[cut:]])) == whole
    assert joined(parsed(form, answer)) == whole


PARTS = [
    *'{}[]",: \n',
    *("name", "arguments", "a", "get_weather", '{"name": "get_weather", "arguments": {'),
    *(opener for form in (HERMES, LLAMA3, MISTRAL, FENCE) for opener in form.openers),
    "</tool_call>",
]


@given(
    st.lists(st.sampled_from(PARTS), max_size=30).map("".join),
    st.sampled_from([HERMES, LLAMA3, MISTRAL, FENCE]),
)
def test_any_text_is_read_the_same_in_any_parts(text, form):
    whole = parsed(form, [text])
    assert joined(parsed(form, text)) == joined(whole)
    if not any(isinstance(piece, CallStart) for piece in whole):
        assert joined(whole)[0] == text


@pytest.mark.parametrize("case", ["Qwen 2.5", "Llama 3.1", "Mistral v3", "Mistral v13"])
def test_a_streamed_call_is_its_name_and_then_its_arguments(case):
    form, answer, _, calls = ANSWERS[case]
    pieces = parsed(form, answer)
    starts = [piece for piece in pieces if isinstance(piece, CallStart)]
    assert [(start.index, start.name) for start in starts] == [
        (index, name) for index, (name, _) in enumerate(calls)
    ]
    assert len({start.id for start in starts}) == len(calls)
    for index, (_, arguments) in enumerate(calls):
        [begin] = [
            at for at, piece in enumerate(pieces) if piece in starts and piece.index == index
        ]
        parts = [at for at, p in enumerate(pieces) if isinstance(p, Arguments) and p.index == index]
        assert len(parts) > 3
        assert parts[0] == begin + 1
        assert json.loads("".join(pieces[at].text for at in parts)) == arguments


def test_only_the_first_call_is_kept_where_one_is_allowed():
    form, answer, _, calls = ANSWERS["Qwen 2.5"]
    assert joined(parsed(form, answer, several=False)) == ("", calls[:1])


def test_a_call_that_breaks_off_is_taken_back_and_another_has_its_own_index():
    answer = '<tool_call>{"name": "f", "arguments": {a}}</tool_call><tool_call>{"name": "g"}'
    pieces = parsed(HERMES, [answer])
    assert [piece.index for piece in pieces if isinstance(piece, CallStart)] == [0, 1]
    [broken] = [piece for piece in pieces if isinstance(piece, CallBroken)]
    assert broken.text == '<tool_call>{"name": "f", "arguments": {a}}'
    assert joined(pieces)[1] == [("g", {})]


def test_text_is_given_as_it_comes():
    parser = ToolCallParser(HERMES, OFFERED)
    assert parser.push("Hello wor") == [Text("Hello wor")]
    assert parser.push("ld \n<tool") == [Text("ld")]
    assert parser.push("ing") == [Text(" \n<tooling")]
    assert not parser.called


@pytest.mark.parametrize(
    ("template", "openers"),
    [
        ("{% if tools %}<tool_call>", HERMES.openers),
        ('{{ "[TOOL_CALLS] [" }} {% for tool in tools %}', MISTRAL.openers),
        (
            'tools: {"name": function name, "parameters": dictionary of argument name',
            LLAMA3.openers,
        ),
        ("{% if tools %}", FENCE.openers),
    ],
)
def test_the_format_is_what_the_template_shows(template, openers):
    assert format_of(template, None).openers == openers
    assert format_of(template, "mistral").openers == MISTRAL.openers


def test_mistrals_newer_templates_name_the_function_first():
    assert format_of("tools [TOOL_CALLS] [ARGS]", None).head("f") == "f[ARGS]"


@pytest.mark.parametrize(
    "unit", [r'<tool_call>{"arguments":{\"', r'<tool_call>[{"name":"f"},{"arguments":{\"']
)
def test_an_answer_of_openers_is_not_read_from_each_of_them(unit, monkeypatch):
    """From each opener on all that follows could be a call."""
    answer, read, reader = unit * 400, [], Format.reader

    def counted(form, events, opener):
        inside = reader(form, events, opener)
        next(inside)
        while True:
            read.append((yield))
            try:
                inside.send(read[-1])
            except StopIteration:
                return

    monkeypatch.setattr(Format, "reader", counted)
    pieces = parsed(HERMES, [answer])
    assert len(read) <= len(answer) + MOST_AGAIN
    assert any(isinstance(piece, Text) for piece in pieces)


@pytest.mark.parametrize("form", [HERMES, FENCE])
def test_a_whole_answer_is_read_as_one_that_comes_in_parts(form):
    call = '{"name": "get_weather", "arguments": {"city": "' + "Oslo" * 1000 + '"}}'
    answer = "Text.\n" * 500 + f"{form.begin}{call}{form.end}\n" + "{ more }" * 300
    pieces = parsed(form, [answer])
    assert joined(pieces) == joined(parsed(form, answer))
