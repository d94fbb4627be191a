"""Predicted outputs: routed to a method that copies, counted, and without effect on the answer."""

import pytest
from asking import HELLO

GREEDY = HELLO | {"temperature": 0, "max_tokens": 24, "ignore_eos": True}
PLAIN = {k: v for k, v in GREEDY.items() if k != "ignore_eos"}


async def posted(ingress, **asked):
    response = await ingress.http.post("/v1/chat/completions", json=GREEDY | asked)
    return response, response.json()


def content(body):
    return body["choices"][0]["message"]["content"]


def predicted(text):
    return {"type": "content", "content": text}


async def test_a_right_prediction_is_copied(ingress):
    first, plain = await posted(ingress)
    assert first.headers["x-specadapt-reason"] == "preferred"
    waiting = ingress.link.waiting
    parts = [{"type": "text", "text": piece} for piece in (content(plain)[:9], content(plain)[9:])]
    for text in (content(plain), parts):
        response, body = await posted(ingress, prediction=predicted(text))
        assert content(body) == content(plain)
        assert response.headers["x-specadapt-method"] == "ngram"
        assert response.headers["x-specadapt-reason"] == "prediction"
        details = body["usage"]["completion_tokens_details"]
        assert details["accepted_prediction_tokens"] > 6
        assert body["usage"]["speculative"]["target_steps"] < 18
    assert ingress.link.waiting == waiting, "nothing is learned of it"


async def test_the_package_reads_a_streamed_usage(openai_client):
    whole = await openai_client.chat.completions.create(**PLAIN)
    assert whole.usage.completion_tokens_details.accepted_prediction_tokens == 0
    stream = await openai_client.chat.completions.create(
        **PLAIN,
        prediction=predicted(whole.choices[0].message.content[::-1]),
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert said == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens_details.rejected_prediction_tokens > 0


async def test_a_pinned_method_answers_whatever_is_predicted(ingress):
    response, body = await posted(ingress, model="tiny:naive", prediction=predicted("hello"))
    assert response.headers["x-specadapt-reason"] == "pinned"
    counted = {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
    counted |= {"reasoning_tokens": 0}
    assert body["usage"]["completion_tokens_details"] == counted


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"type": "text", "content": "a"}, "prediction.type"),
        ({"type": "content"}, "prediction.content"),
        ({"type": "content", "content": []}, "prediction.content"),
        ({"type": "content", "content": [{"type": "image_url"}]}, "prediction.content[0].type"),
        ({"type": "content", "content": "x y " * 600}, "prediction.content"),
        ({"type": "content", "content": "x" * 10**6}, "prediction.content"),
    ],
)
async def test_a_bad_prediction_is_named(ingress, given, param):
    response, body = await posted(ingress, prediction=given)
    assert response.status_code == 400
    assert body["error"]["param"] == param


async def test_an_empty_prediction_asks_for_nothing(ingress):
    response, _ = await posted(ingress, prediction=predicted(""))
    assert response.headers["x-specadapt-reason"] == "preferred"
