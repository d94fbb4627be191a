"""The openai package, against the running service with nothing changed but its address."""

import numpy as np
import openai
import pytest
from pydantic import BaseModel
from running_service import until

HELLO = [{"role": "user", "content": "Write a Python function"}]
GREEDY = {"model": "tiny", "messages": HELLO, "max_tokens": 10, "temperature": 0}
ENCODER = "all-MiniLM-L6-v2"
TEXTS = ["Write a Python function.", "Tell me about the sea."]


class Verdict(BaseModel):
    ok: bool


@pytest.fixture(scope="module")
def client(base):
    with openai.OpenAI(base_url=base, api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def vectors(client):
    answer = client.embeddings.create(model=ENCODER, input=TEXTS, encoding_format="float")
    return np.asarray([entry.embedding for entry in answer.data])


def test_models(client):
    names = [model.id for model in client.models.list()]
    assert names == ["tiny", "tiny:naive", "tiny:draft_verify", "tiny:ngram", ENCODER]
    assert [client.models.retrieve(name).id for name in names] == names


def test_chat_streams_what_it_answers(client):
    answer = client.chat.completions.create(**GREEDY)
    stream = client.chat.completions.create(
        **GREEDY, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = stream
    assert last.choices == []
    assert last.usage.completion_tokens == answer.usage.completion_tokens
    assert all(chunk.usage is None for chunk in chunks)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == answer.choices[0].message.content
    assert chunks[-1].choices[0].finish_reason == answer.choices[0].finish_reason


def test_conversation_goes_on_with_its_own_messages(client):
    first = client.chat.completions.create(**GREEDY).choices[0].message
    messages = [*HELLO, first, {"role": "user", "content": [{"type": "text", "text": "And now?"}]}]
    answer = client.chat.completions.create(**GREEDY | {"messages": messages})
    assert answer.usage.prompt_tokens > 0


def test_conversation_stays_on_its_method(client, service):
    """The favourite of all prompts is another one, and nothing else keeps it busy."""
    until(service.idle)
    favourites = {name for row in service.routing()["assignment"] for name in row.values()}
    assert favourites == {"draft_verify"}
    for method in ("naive", "ngram"):
        asked = GREEDY | {"model": f"tiny:{method}"}
        first = client.chat.completions.create(**asked).choices[0].message
        messages = [*HELLO, first, {"role": "user", "content": f"And now, {method}?"}]
        raw = client.chat.completions.with_raw_response.create(**GREEDY | {"messages": messages})
        assert raw.headers["x-specadapt-method"] == method
        assert raw.headers["x-specadapt-reason"] == "conversation"


def test_choices_repeat_under_a_seed(client):
    asked = GREEDY | {"model": "tiny:naive", "temperature": 1, "n": 3, "seed": 7}

    def texts():
        return [c.message.content for c in client.chat.completions.create(**asked).choices]

    first = texts()
    assert len(first) == len(set(first)) == 3
    assert first == texts()


def test_stop(client):
    whole = client.chat.completions.create(**GREEDY).choices[0].message.content
    stop = whole[len(whole) // 2 :][:3]
    cut = client.chat.completions.create(**GREEDY, stop=stop).choices[0]
    assert cut.message.content == whole[: whole.index(stop)]
    assert cut.finish_reason == "stop"


def test_logprobs(client):
    answer = client.chat.completions.create(**GREEDY, logprobs=True, top_logprobs=3)
    for token in answer.choices[0].logprobs.content:
        assert len(token.top_logprobs) == 3
        assert token.logprob == token.top_logprobs[0].logprob


def test_structured_output(client):
    asked = GREEDY | {"max_tokens": 60}
    parsed = client.chat.completions.parse(**asked, response_format=Verdict)
    assert isinstance(parsed.choices[0].message.parsed, Verdict)
    answer = client.chat.completions.create(
        **GREEDY | {"max_tokens": 400}, response_format={"type": "json_object"}, stop="}"
    )
    assert answer.choices[0].message.content.startswith("{")


def test_completions(client):
    asked = {"model": "tiny", "prompt": "a b c", "max_tokens": 6, "temperature": 0}
    whole = client.completions.create(**asked, logprobs=1)
    assert len(whole.choices[0].logprobs.tokens) == whole.usage.completion_tokens
    pieces = [chunk.choices[0].text for chunk in client.completions.create(**asked, stream=True)]
    assert "".join(pieces) == whole.choices[0].text


def test_completions_of_several_prompts(client):
    asked = {"model": "tiny", "max_tokens": 6, "temperature": 0}
    prompts = ["a b c", "def f(x):"]
    alone = [client.completions.create(**asked, prompt=one).choices[0].text for one in prompts]
    answer = client.completions.create(**asked, prompt=prompts, n=2, seed=1)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in answer.choices] == [alone[i // 2] for i in range(4)]
    texts = ["", ""]
    for chunk in client.completions.create(**asked, prompt=prompts, echo=True, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [prompt + text for prompt, text in zip(prompts, alone, strict=True)]
    ids = client.completions.create(**asked, prompt=[[5, 6], [7]])
    assert len(ids.choices) == 2


def test_stream_helper(client):
    whole = client.chat.completions.create(**GREEDY).choices[0].message.content
    with client.chat.completions.stream(**GREEDY) as stream:
        events = list(stream)
    assert {event.type for event in events} == {"chunk", "content.delta", "content.done"}
    assert events[-1].content == whole


def test_harmless_fields_and_the_request_id(client):
    answer = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "developer", "content": "Be brief."}, *HELLO],
        max_completion_tokens=4,
        user="someone",
        safety_identifier="someone",
        metadata={"purpose": "test"},
        store=False,
        service_tier="auto",
        tools=[],
        tool_choice="auto",
        parallel_tool_calls=True,
        extra_headers={"x-request-id": "mine-8"},
    )
    assert answer.usage.completion_tokens <= 4
    assert answer._request_id == "mine-8"


def test_a_pin_is_a_model_of_its_own(client):
    raw = client.chat.completions.with_raw_response.create(**GREEDY | {"model": "tiny:ngram"})
    assert raw.headers["x-specadapt-method"] == "ngram"
    assert raw.parse().model == "tiny:ngram"


def test_does_not_repeat_a_missed_deadline(base):
    asked = GREEDY | {"max_tokens": 400}
    with openai.OpenAI(base_url=base, api_key="none", max_retries=5) as patient:
        raw = patient.with_options(default_headers={"x-specadapt-deadline-ms": "1"})
        with pytest.raises(openai.APIStatusError) as caught:
            raw.chat.completions.create(**asked)
    assert caught.value.code == "deadline_exceeded"
    assert "x-stainless-retry-count" in caught.value.request.headers
    assert caught.value.request.headers["x-stainless-retry-count"] == "0"


def test_an_endpoint_that_is_not_there_says_which_are(client):
    with pytest.raises(openai.NotFoundError, match="/v1/chat/completions"):
        client.responses.create(model="tiny", input="Hello")


def test_embeddings_in_both_encodings(client, vectors):
    answer = client.embeddings.create(model=ENCODER, input=TEXTS)
    np.testing.assert_allclose([entry.embedding for entry in answer.data], vectors)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-4)


async def test_asynchronously(base):
    async with openai.AsyncOpenAI(base_url=base, api_key="none", max_retries=0) as client:
        stream = await client.chat.completions.create(**GREEDY, stream=True)
        assert [chunk async for chunk in stream][-1].choices[0].finish_reason


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]},
        {"functions": [{"name": "f", "parameters": {}}]},
        {"tool_choice": "required"},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        {"extra_body": {"not_a_parameter": 1}},
    ],
)
def test_refusals_name_the_field(client, fields):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**GREEDY | fields)
    name = next(iter(fields.get("extra_body", fields)))
    assert caught.value.param.startswith(name)
