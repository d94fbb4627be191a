"""POST /v1/embeddings: the router's own vectors, and every limit with the field it concerns."""

import httpx
import numpy as np
import pytest
from asking import Clock

from deployments.api.embeddings import MAX_CHARACTERS, MAX_INPUTS, EmbeddingRequest, Embeddings
from deployments.api.routes import HttpApi
from deployments.errors import ApiError
from deployments.guard.caller import Caller, Meter
from deployments.metrics import Metrics
from schemas.keys import Limits

MODEL = "static-minilm"
TEXTS = ["Write a Python function.", "Tell me about the sea.", "Write a Python function."]


async def embedded(ingress, status=200, **fields):
    response = await ingress.http.post("/v1/embeddings", json={"model": MODEL} | fields)
    assert response.status_code == status, response.text
    return response.json()


async def test_vectors_are_the_encoders_in_the_order_asked(ingress, encoder):
    body = await embedded(ingress, input=TEXTS)
    assert (body["object"], body["model"]) == ("list", MODEL)
    assert [entry["index"] for entry in body["data"]] == [0, 1, 2]
    assert {entry["object"] for entry in body["data"]} == {"embedding"}
    vectors = np.asarray([entry["embedding"] for entry in body["data"]])
    np.testing.assert_array_equal(vectors, encoder.embed(TEXTS))
    tokens = sum(encoder.token_count(text) for text in TEXTS)
    assert body["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}


async def test_the_openai_client_reads_it(openai_client, encoder):
    """The client asks for base64 by itself and decodes it."""
    answer = await openai_client.embeddings.create(model=MODEL, input=TEXTS)
    vectors = np.asarray([entry.embedding for entry in answer.data], dtype=np.float32)
    np.testing.assert_array_equal(vectors, encoder.embed(TEXTS))


INVALID, UNSUPPORTED, TOO_LONG = "invalid_value", "unsupported_parameter", "context_length_exceeded"
BAD = {
    "another model": ({"model": "tiny", "input": "a"}, "model_not_found", "model"),
    "no input": ({}, "missing_required_parameter", "input"),
    "empty text": ({"input": ""}, INVALID, "input"),
    "empty list": ({"input": []}, INVALID, "input"),
    "an empty text among others": ({"input": ["a", ""]}, INVALID, "input[1]"),
    "token ids": ({"input": [5, 6]}, UNSUPPORTED, "input"),
    "lists of token ids": ({"input": [[5, 6], [7]]}, UNSUPPORTED, "input"),
    "too many texts": ({"input": ["a"] * (MAX_INPUTS + 1)}, INVALID, "input"),
    "too many characters": ({"input": ["a", "b" * (MAX_CHARACTERS + 1)]}, INVALID, "input[1]"),
    "too many tokens": ({"input": ["a", "b " * 300]}, TOO_LONG, "input[1]"),
    "one text with too many tokens": ({"input": "b " * 300}, TOO_LONG, "input"),
    "other dimensions": ({"input": "a", "dimensions": 64}, UNSUPPORTED, "dimensions"),
    "another encoding": ({"input": "a", "encoding_format": "int8"}, INVALID, "encoding_format"),
}


@pytest.mark.parametrize("case", BAD)
async def test_what_cannot_be_embedded_is_refused_by_name(ingress, case):
    fields, code, param = BAD[case]
    status = 404 if param == "model" else 400
    error = (await embedded(ingress, status, **fields))["error"]
    assert (error["code"], error["param"]) == (code, param)


async def test_without_an_encoder_it_is_unavailable_and_not_listed(ingress, config):
    without = Embeddings(None)
    api = HttpApi(ingress.reader, ingress.answerer, without, ingress.link, Metrics(), config)
    transport = httpx.ASGITransport(api.app())
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        response = await http.post("/v1/embeddings", json={"model": MODEL, "input": "a"})
        assert response.status_code == 503
        assert response.headers["retry-after"] == "1"
        assert "encoder cannot be read" in response.json()["error"]["message"]
        listed = (await http.get("/v1/models")).json()["data"]
        assert MODEL not in [model["id"] for model in listed]
        assert (await http.get(f"/v1/models/{MODEL}")).status_code == 404


async def test_counting_the_tokens_of_texts_that_are_refused_is_charged(encoder):
    meter = Meter("key one", Limits(tokens_per_minute=600), Clock())
    caller = Caller("one", meters=[meter])
    long = EmbeddingRequest(model=MODEL, input=["b " * 4000] * 2)
    with pytest.raises(ApiError) as caught:
        await Embeddings(encoder).answer(long, caller)
    assert caught.value.param == "input[0]"
    assert caller.tokens == 0
    assert meter.excess(tokens=600).seconds > 0.0
