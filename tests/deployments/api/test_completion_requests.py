"""How many prompts a completion request holds, and what it does with them."""

import json

import pytest

from deployments.api.input import parse
from deployments.api.request_bodies import CompletionRequest
from deployments.errors import ApiError


def completion(prompt, **fields):
    body = json.dumps({"model": "m", "prompt": prompt} | fields).encode()
    return parse(CompletionRequest, body)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("a b", {"prompt": "a b"}),
        ([1, 2], {"prompt": [1, 2]}),
        (["a b"], {"prompt[0]": "a b"}),
        (["a", "b"], {"prompt[0]": "a", "prompt[1]": "b"}),
        ([[1, 2], [3]], {"prompt[0]": [1, 2], "prompt[1]": [3]}),
    ],
)
def test_prompts_in_any_of_their_forms(prompt, expected):
    assert completion(prompt).prompts() == expected


@pytest.mark.parametrize(
    ("prompt", "param", "why"),
    [
        (["a"] * 65, "prompt", "at most 64 items"),
        ([[1]] * 65, "prompt", "at most 64 items"),
        (["a", 1], "prompt[1]", "valid string"),
        (["a", [1]], "prompt[1]", "valid string"),
        ([1, "a"], "prompt[1]", "valid integer"),
        ([1, None], "prompt[1]", "valid integer"),
        ([1.5], "prompt[0]", "valid integer"),
        ([True], "prompt[0]", "valid integer"),
        ([[1], "a"], "prompt[1]", "valid list"),
        ([[1], ["a"]], "prompt[1][0]", "valid integer"),
        ([[1, True]], "prompt[0][1]", "valid integer"),
        ({"a": 1}, "prompt", "valid string"),
        ([], "prompt", "at least 1 item"),
    ],
)
def test_the_reason_is_that_of_the_form_that_was_meant(prompt, param, why):
    with pytest.raises(ApiError) as caught:
        completion(prompt)
    assert caught.value.param == param
    assert why in caught.value.message


def test_a_request_has_so_many_answers():
    assert len(completion(["a"] * 16, n=4).prompts()) == 16
    with pytest.raises(ApiError, match=r"17 prompts with n 4 ask for 68 answers") as caught:
        completion(["a"] * 17, n=4).prompts()
    assert caught.value.param == "prompt"


def test_an_echoed_prompt_has_no_log_probabilities():
    assert completion("a", echo=True).wanted_logprobs is None
    with pytest.raises(ApiError) as caught:
        completion("a", echo=True, logprobs=0).sampling(1, 100)
    assert (caught.value.param, caught.value.code) == ("logprobs", "unsupported_parameter")
