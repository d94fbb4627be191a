"""Adapters of the target, by the names that requests give as their model."""

import pytest
from asking import HELLO, posted, reached
from service_here import ingress_here

from deployments.api.prompt_reader import PromptReader

COMPLETION = {"prompt": "hello", "max_tokens": 8}
ASKED = {
    "/v1/chat/completions": HELLO,
    "/v1/completions": COMPLETION,
    "/v1/responses": {"input": "hello", "max_output_tokens": 8},
    "/v1/messages": HELLO,
}


@pytest.fixture
async def adapted(config, engine, encoder, tiny_bundle, tmp_path):
    """An ingress that serves two adapters, and the requests that reach its methods."""
    adapters = {"law": tmp_path, "code-2.1": tmp_path}
    methods = [method.name for method in config.methods]
    served = config.engine.model_copy(update={"lora_adapters": adapters})
    reader = PromptReader(tiny_bundle, methods, served, config.http)
    made = await ingress_here(config, engine, encoder, reader)
    made.called = reached(made)
    async with made.http:
        yield made


@pytest.mark.parametrize("path", ASKED)
async def test_every_api_takes_an_adapter_and_a_method(adapted, path):
    for model in ("tiny", "tiny:law", "tiny:law:ngram", "tiny:ngram", "tiny:code-2.1"):
        await posted(adapted, path, ASKED[path] | {"model": model})
    asked = [(one.adapter, one.method) for one in adapted.called]
    assert asked[:4] == [
        *((None, "draft_verify"), ("law", "draft_verify"), ("law", "ngram"), (None, "ngram"))
    ]
    assert asked[4][0] == "code-2.1"
    base, law, again, plain, code = (one.scope for one in adapted.called)
    assert base == plain == "", "the target shares what it shared before"
    assert law == again
    assert len({base, law, code}) == 3, "prefixes and past answers of two adapters are kept apart"


@pytest.mark.parametrize("name", ["tiny:warp", "tiny:law:warp", "tiny:ngram:law", "law", "tiny:"])
@pytest.mark.parametrize("path", [*ASKED, "/tokenize", "/v1/routing/explain"])
async def test_an_unknown_name_is_told_the_adapters(adapted, path, name):
    asked = ASKED.get(path, {"prompt": "hello"})
    response = await adapted.http.post(path, json=asked | {"model": name})
    assert response.status_code == 404
    assert "tiny:naive, tiny:draft_verify, tiny:ngram, tiny:law, tiny:code-2.1" in response.text


async def test_adapters_are_listed_with_their_parent(adapted):
    listed = (await adapted.http.get("/v1/models")).json()["data"]
    parents = {model["id"]: model["parent"] for model in listed}
    assert {name for name, parent in parents.items() if parent} == {"tiny:law", "tiny:code-2.1"}
    assert parents["tiny:law"] == "tiny"
    assert "tiny:law:ngram" not in parents
    one = (await adapted.http.get("/v1/models/tiny:law:ngram")).json()
    assert (one["id"], one["parent"]) == ("tiny:law:ngram", "tiny")
    tokens = await adapted.http.post("/tokenize", json={"model": "tiny:law", "prompt": "hello"})
    assert tokens.json()["count"] > 0
