"""Requests with a parameter that some methods' engines refuse. The specs say that a method is
vLLM's; the tiny models answer for it."""

import pytest
from asking import HELLO

from deployments.api.answering import NO_LEARNING
from deployments.request.refusals import Refusals
from workers.methods import get_method

MIN_P = HELLO | {"min_p": 0.1}
BIAS = HELLO | {"logit_bias": {"7": 5}}


def in_vllm(*names):
    return tuple(get_method(name).model_copy(update={"engine": "vllm"}) for name in names)


@pytest.fixture
def per_method(ingress):
    """Each method has an engine of its own."""
    names = ("naive", "draft_verify", "ngram")
    ingress.answerer._refusals = Refusals([in_vllm(name) for name in names])
    return ingress


@pytest.fixture
def shared(ingress):
    """One engine holds them all."""
    ingress.answerer._refusals = Refusals([in_vllm("naive", "draft_verify", "ngram")])
    return ingress


async def post(ingress, body):
    return await ingress.http.post("/v1/chat/completions", json=body)


def refused(response, field):
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["param"], error["code"]) == (field, "unsupported_parameter")
    return error["message"]


@pytest.mark.parametrize("body", [MIN_P, BIAS, BIAS | {"temperature": 0, "stream": True}])
async def test_it_goes_to_the_method_without_speculation(per_method, body):
    usual = await post(per_method, HELLO)
    assert usual.headers["x-specadapt-method"] == "draft_verify"
    response = await post(per_method, body)
    assert response.status_code == 200
    assert response.headers["x-specadapt-method"] == "naive"
    assert response.headers["x-specadapt-reason"] == "constraint"


async def test_greedy_answers_are_routed_as_ever(per_method):
    response = await post(per_method, MIN_P | {"temperature": 0})
    assert response.headers["x-specadapt-method"] == "draft_verify"


async def test_a_pinned_method_that_speculates_refuses(per_method):
    response = await post(per_method, MIN_P | {"model": "tiny:ngram"})
    said = refused(response, "min_p")
    assert said.startswith("min_p: ")
    assert said.endswith("ngram has an engine that speculates: pin no method")
    assert (await post(per_method, MIN_P | {"model": "tiny:naive"})).status_code == 200


async def test_an_engine_that_speculates_refuses_for_all_its_methods(shared):
    assert "every method served" in refused(await post(shared, BIAS), "logit_bias")
    pinned = await post(shared, BIAS | {"model": "tiny:naive"})
    assert "leave it out" in refused(pinned, "logit_bias")
    assert (await post(shared, HELLO)).status_code == 200


async def test_without_the_method_that_could_there_is_no_answer(per_method):
    per_method.answerer.circuits.resting = lambda: frozenset({"naive"})
    response = await post(per_method, MIN_P)
    assert response.status_code == 503


@pytest.mark.parametrize(
    "asked", [{"json": HELLO | {"store": False}}, {"headers": {NO_LEARNING: "1"}}]
)
async def test_an_answer_that_must_not_be_kept_goes_to_no_method_that_keeps_all(ingress, asked):
    """vLLM's suffix drafter keeps every answer of its engine, whatever the request says."""
    suffix = get_method("vllm_suffix").model_copy(update={"name": "draft_verify"})
    others = [in_vllm("naive"), in_vllm("ngram")]
    keeps_none = suffix.model_copy(update={"settings": {"drafter": {"max_cached_requests": 0}}})
    for specs, elsewhere, taken in (
        (suffix, False, False),
        (keeps_none, False, True),
        (keeps_none, True, False),
    ):
        refusals = Refusals([(specs,), *others], elsewhere=elsewhere)
        ingress.answerer._refusals = refusals
        body = {"json": HELLO} | asked
        response = await ingress.http.post("/v1/chat/completions", **body)
        assert (response.headers["x-specadapt-method"] == "draft_verify") is taken
        pinned = body | {"json": body["json"] | {"model": "tiny:draft_verify"}}
        response = await ingress.http.post("/v1/chat/completions", **pinned)
        if not taken:
            assert "draft_verify keeps every answer: pin no method" in refused(response, "store")
    usual = await post(ingress, HELLO | {"store": True})
    assert usual.headers["x-specadapt-method"] == "draft_verify"
