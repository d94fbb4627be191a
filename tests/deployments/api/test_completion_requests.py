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


def test_an_echoed_prompt_has_log_probabilities_where_they_are_asked_for():
    sampling = completion("a", echo=True, logprobs=2).sampling(1, 100)
    assert (sampling.prompt_logprobs, sampling.logprobs) == (2, 2)
    for fields in ({"echo": True}, {"logprobs": 2}):
        assert completion("a", **fields).sampling(1, 100).prompt_logprobs is None


def test_a_prompt_may_be_read_and_not_answered():
    assert completion("a", max_tokens=0).sampling(1, 100).max_tokens == 1
    with pytest.raises(ApiError) as caught:
        completion("a", max_tokens=0, min_tokens=1).sampling(1, 100)
    assert caught.value.param == "min_tokens"
