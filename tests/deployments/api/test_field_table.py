"""docs/fields.md against the bodies, the openai package and vLLM."""

import ast
import typing
from importlib.util import find_spec
from pathlib import Path

import pytest
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_create_params

from deployments.api.generation import ONLY, WITHOUT_EFFECT
from deployments.api.request_bodies import ChatRequest, CompletionRequest
from deployments.api.responses_and_messages.messages import MessagesRequest
from deployments.api.responses_and_messages.responses import ResponsesRequest
from deployments.api.responses_and_messages.surface import SAME
from deployments.api.structured import GUIDED

PAGE = Path(__file__).parents[3] / "docs" / "fields.md"
BODIES = (ChatRequest, CompletionRequest)
ORIGINS = ["OpenAI", "vLLM", "ours"]
OPENAI = (chat_create_params, completion_create_params)
VLLM = {"chat_completion": "ChatCompletionRequest", "completion": "CompletionRequest"}


def rows():
    """Each field's origin and what the two bodies do with it."""
    tables = PAGE.read_text().partition("\n## ")[0]  # other bodies have sections of their own
    found = {}
    for section in tables.split("\n### ")[1:]:
        origin, *lines = section.splitlines()
        for line in (line for line in lines if line.startswith("| `")):
            name, effects, *_ = (cell.strip() for cell in line.strip("|").split(" | "))
            chat, _, completion = effects.partition(", ")
            found[name.strip("`")] = (origin, chat, completion or chat)
    return found


def treatment(body, field):
    if field in body.model_fields or field in GUIDED:
        return "works"
    if field in WITHOUT_EFFECT:
        return "no effect"
    return "refused" if field in ONLY else "–"


def test_every_field_is_treated_as_the_table_says():
    table = rows()
    assert list(table) == sorted(table, key=lambda name: (ORIGINS.index(table[name][0]), name))
    for field, (_, *said) in table.items():
        assert said == [treatment(body, field) for body in BODIES], field
    known = {*WITHOUT_EFFECT, *ONLY, *GUIDED}.union(*(body.model_fields for body in BODIES))
    assert known == table.keys()


@pytest.mark.parametrize(
    ("title", "body"), [("Responses", ResponsesRequest), ("Messages", MessagesRequest)]
)
def test_every_field_of_the_other_bodies_is_treated_as_its_table_says(title, body):
    section = PAGE.read_text().partition(f"## {title}")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    table = {name.strip(" `"): said.strip() for name, said, *_ in rows}
    assert list(table) == sorted(table)
    own = dict.fromkeys(body.model_fields.keys() - {*SAME} | {"model", "stream"}, "works")
    others = dict.fromkeys(body.without_effect, "no effect") | dict.fromkeys(body.only, "refused")
    assert table == others | own
    shared = {f"`{name}`" for name in SAME if "penalty" not in name}
    assert title != "Responses" or all(name in section for name in shared)


def test_every_parameter_of_the_openai_package_is_in_the_table():
    table, openai = rows(), set()
    for index, module in enumerate(OPENAI, start=1):
        of_body = set(typing.get_type_hints(module.CompletionCreateParamsStreaming))
        assert [field for field in of_body if table[field][index] == "–"] == []
        openai |= of_body
    assert {field for field, (origin, *_) in table.items() if origin == "OpenAI"} == openai


@pytest.mark.vllm
@pytest.mark.parametrize("index", [1, 2])
def test_every_field_of_vllm_is_in_the_table(index):
    """Read from its source: importing it takes longer than the test."""
    name = list(VLLM)[index - 1]
    [folder] = find_spec("vllm").submodule_search_locations
    source = Path(folder, "entrypoints", "openai", name, "protocol.py").read_text()
    [body] = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == VLLM[name]
    ]
    annotated = [node.target.id for node in body.body if isinstance(node, ast.AnnAssign)]
    fields = [field for field in annotated if not field.startswith("_")]
    assert len(fields) > 40
    assert [field for field in fields if rows()[field][index] == "–"] == []
