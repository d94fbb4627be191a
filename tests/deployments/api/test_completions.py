"""Completions of several prompts in one request, in the shapes the openai package reads."""

import pytest
from asking import events, second_fails, until

PROMPTS = ["hello", "one two three", "def f(x):"]
GREEDY = {"model": "tiny", "max_tokens": 12, "ignore_eos": True, "temperature": 0}


async def posted(ingress, **asked):
    return await ingress.http.post("/v1/completions", json=GREEDY | asked)


async def alone(ingress, **asked):
    answers = [(await posted(ingress, prompt=prompt, **asked)).json() for prompt in PROMPTS]
    return answers, [choice["text"] for answer in answers for choice in answer["choices"]]


async def test_each_prompt_is_answered_as_if_alone(ingress):
    answers, texts = await alone(ingress)
    together = (await posted(ingress, prompt=PROMPTS)).json()
    assert [choice["index"] for choice in together["choices"]] == [0, 1, 2]
    assert [choice["text"] for choice in together["choices"]] == texts
    assert len(set(texts)) == 3
    for count in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert together["usage"][count] == sum(answer["usage"][count] for answer in answers)
    assert ingress.link.waiting == 6, "an observation for each"


async def test_choices_stand_beside_their_prompt(ingress):
    asked = {"temperature": 1, "seed": 5, "n": 2}
    _, texts = await alone(ingress, **asked)
    together = (await posted(ingress, prompt=PROMPTS, **asked)).json()
    assert [choice["index"] for choice in together["choices"]] == list(range(6))
    assert [choice["text"] for choice in together["choices"]] == texts
    assert together["usage"]["completion_tokens"] == 6 * 12


@pytest.mark.parametrize("echo", [False, True])
async def test_streamed_they_say_the_same(openai_client, echo):
    asked = {k: v for k, v in GREEDY.items() if k != "ignore_eos"} | {"echo": echo}
    whole = await openai_client.completions.create(prompt=PROMPTS, **asked)
    texts, usage = dict.fromkeys(range(3), ""), None
    stream = await openai_client.completions.create(
        prompt=PROMPTS, **asked, stream=True, stream_options={"include_usage": True}
    )
    async for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
        usage = chunk.usage
    assert list(texts.values()) == [choice.text for choice in whole.choices]
    assert [text.startswith(p) for text, p in zip(texts.values(), PROMPTS, strict=True)] == [
        echo
    ] * 3
    assert usage.prompt_tokens == whole.usage.prompt_tokens
    assert usage.completion_tokens == whole.usage.completion_tokens


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        ([-1], "prompt"),
        (["a", ""], "prompt[1]"),
        ([[5], []], "prompt[1]"),
        ([[5], [10**8]], "prompt[1]"),
        (["a", "b " * 2000], "prompt[1]"),
    ],
)
async def test_the_prompt_that_is_wrong_is_named(ingress, prompt, param):
    response = await posted(ingress, prompt=prompt)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


@pytest.mark.parametrize("stream", [True, False])
async def test_one_that_breaks_off_ends_them_all(ingress, stream):
    ids = second_fails(ingress, after=1)
    asked = {"prompt": PROMPTS, "model": "tiny:naive", "max_tokens": 400, "stream": stream}
    response = await posted(ingress, **asked)
    said = events(response)[-1] if stream else response.text
    assert "answer_broken_off" in said
    assert len(ids) == 3
    await until(lambda: ingress.engine.load().running == 0)


async def test_one_that_cannot_begin_ends_them_all(ingress):
    second_fails(ingress)
    asked = {"prompt": PROMPTS, "model": "tiny:naive", "max_tokens": 400, "stream": True}
    response = await posted(ingress, **asked)
    assert response.json()["error"]["code"] == "request_given_up"
    await until(lambda: ingress.engine.load().running == 0)
