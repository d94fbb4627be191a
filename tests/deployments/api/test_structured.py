"""Structured output over HTTP: valid from every method; a malformed schema is named."""

import json

import jsonschema
import pytest
from asking import posted

SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "tag": {"enum": ["red", "green"]}},
    "required": ["ok", "tag"],
    "additionalProperties": False,
}
ASKED = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 250}


def form(schema):
    wrapped = {"name": "answer", "schema": schema, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": wrapped}}


@pytest.mark.parametrize("method", ["naive", "draft_verify", "ngram"])
async def test_every_method_follows_the_schema(ingress, method):
    asked = ASKED | form(SCHEMA) | {"model": f"tiny:{method}", "n": 3, "seed": 1}
    for choice in (await posted(ingress, "/v1/chat/completions", asked))["choices"]:
        assert choice["finish_reason"] == "stop"
        jsonschema.validate(json.loads(choice["message"]["content"]), SCHEMA)


async def test_a_completion_follows_a_regular_expression(ingress):
    pattern = {"kind": "regex", "text": "(yes|no)!"}
    asked = {"model": "tiny", "prompt": "well?", "max_tokens": 20, "grammar": pattern}
    [choice] = (await posted(ingress, "/v1/completions", asked))["choices"]
    assert choice["text"] in ("yes!", "no!")
