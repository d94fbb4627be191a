"""What a request says of speculation and predicted outputs, and how fast its answer has to be."""

import pytest
from asking import HELLO

from deployments.api.answering import FIRST, TOKEN, slo_of
from deployments.errors import ApiError
from deployments.request.refusals import Refusals
from router.constraints import Slo
from workers.methods import get_method

GREEDY = HELLO | {"temperature": 0, "max_tokens": 24, "ignore_eos": True}


async def answered(ingress, headers=None, **speculation):
    asked = GREEDY | ({"speculation": speculation} if speculation else {})
    response = await ingress.http.post("/v1/chat/completions", json=asked, headers=headers)
    assert response.status_code == 200, response.text
    body = response.json()
    told = response.headers["x-specadapt-method"], response.headers["x-specadapt-reason"]
    return (*told, body["choices"], body["usage"]["speculative"])


async def test_a_request_names_its_method_and_its_longest_draft(ingress):
    usual = await answered(ingress)
    assert usual[0] == "draft_verify"
    method, reason, choices, _ = await answered(ingress, method="ngram")
    assert (method, reason, choices) == ("ngram", "pinned", usual[2])
    short = await answered(ingress, method="draft_verify", max_draft_tokens=1)
    assert short[2] == usual[2]
    assert 0 < short[3]["drafted_tokens"] <= short[3]["target_steps"]
    none = await answered(ingress, method="draft_verify", max_draft_tokens=0)
    assert none[2] == usual[2]
    assert none[3]["drafted_tokens"] == 0
    assert none[3]["target_steps"] == 24


async def test_off_is_plain_decoding(ingress):
    method, reason, choices, told = await answered(ingress, off=True)
    assert (method, reason) == ("naive", "constraint")
    assert choices == (await answered(ingress))[2]
    assert told["drafted_tokens"] == 0


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"speculation": {"method": "warp"}}, "speculation.method"),
        ({"speculation": {"method": "naive"}, "model": "tiny:ngram"}, "speculation.method"),
        ({"speculation": {"off": True, "max_draft_tokens": 2}}, "speculation.off"),
        ({"speculation": {"max_draft_tokens": -1}}, "speculation.max_draft_tokens"),
    ],
)
async def test_wishes_that_cannot_be_are_refused(ingress, fields, param):
    response = await ingress.http.post("/v1/chat/completions", json=HELLO | fields)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param


async def test_vllms_drafts_have_the_length_that_they_have(ingress):
    names = ("naive", "draft_verify", "ngram")
    specs = [get_method(name).model_copy(update={"engine": "vllm"}) for name in names]
    ingress.answerer._refusals = Refusals([specs])
    for asked in ({"off": True}, {"max_draft_tokens": 2}):
        assert (await answered(ingress, **asked))[:2] == ("naive", "constraint")
    asked = HELLO | {"speculation": {"max_draft_tokens": 2, "method": "ngram"}}
    response = await ingress.http.post("/v1/chat/completions", json=asked)
    assert response.json()["error"]["param"] == "speculation"


async def test_objectives_choose_the_method(ingress):
    """The table's favourite is draft_verify; a request without a cluster takes the default."""
    usual = await answered(ingress)
    assert usual[1] == "preferred"
    kept = await answered(ingress, {FIRST: "60000", TOKEN: "60000.5"})
    assert kept[:2] == usual[:2]
    explained = await ingress.http.post(
        "/v1/routing/explain", json={"prompt": "hello"}, headers={TOKEN: "0.001"}
    )
    assert explained.json()["method"] == "draft_verify"


def test_objectives_are_milliseconds():
    assert slo_of({}) == Slo()
    assert not slo_of({})
    assert slo_of({FIRST: " 200 ", TOKEN: "12.5"}) == Slo(0.2, 0.0125)
    for wrong in ("0", "-1", "1e3", "soon", "86400001", "", "٣"):
        with pytest.raises(ApiError) as caught:
            slo_of({TOKEN: wrong})
        assert (caught.value.status, caught.value.param) == (400, TOKEN)


PLAIN = {k: v for k, v in GREEDY.items() if k != "ignore_eos"}


async def predicting(ingress, **asked):
    response = await ingress.http.post("/v1/chat/completions", json=GREEDY | asked)
    return response, response.json()


def content(body):
    return body["choices"][0]["message"]["content"]


def predicted(text):
    return {"type": "content", "content": text}


async def test_a_right_prediction_is_copied(ingress):
    first, plain = await predicting(ingress)
    assert first.headers["x-specadapt-reason"] == "preferred"
    waiting = ingress.link.waiting
    parts = [{"type": "text", "text": piece} for piece in (content(plain)[:9], content(plain)[9:])]
    for text in (content(plain), parts):
        response, body = await predicting(ingress, prediction=predicted(text))
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
    response, body = await predicting(ingress, model="tiny:naive", prediction=predicted("hello"))
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
    response, body = await predicting(ingress, prediction=given)
    assert response.status_code == 400
    assert body["error"]["param"] == param


async def test_an_empty_prediction_asks_for_nothing(ingress):
    response, _ = await predicting(ingress, prediction=predicted(""))
    assert response.headers["x-specadapt-reason"] == "preferred"
