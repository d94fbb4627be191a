"""A replica that dies in the middle of an answer: another goes on from the tokens that are out."""

import json

import pytest
from asking import HELLO, answered, dies_after, events, posted, prompt, spoken

from deployments.errors import ApiError
from schemas import Grammar, SamplingParams
from workers.engine import EngineRefusedError

DIGITS = Grammar(kind="regex", text="[0-9]{40}")
LONG = {"max_tokens": 40}


@pytest.mark.parametrize("tokens", [1, 20])
@pytest.mark.parametrize(
    "wishes",
    [
        {"ignore_eos": True},
        {"ignore_eos": True, "frequency_penalty": 1.5},
        {"ignore_eos": True, "repetition_penalty": 1.5, "presence_penalty": -1.0},
        {"grammar": DIGITS},
        {"ignore_eos": True, "logprobs": 2},
    ],
    ids=["plain", "frequency", "repetition", "grammar", "logprobs"],
)
async def test_at_temperature_0_the_answer_is_as_if_nothing_had_died(ingress, wishes, tokens):
    asked = prompt(sampling=SamplingParams(**LONG, **wishes))
    whole = await spoken(await answered(ingress, asked))
    favourite = "draft_verify"
    ingress.streams[favourite] = dies_after(ingress.streams[favourite], tokens)
    answer = await answered(ingress, asked)
    assert answer.method == favourite
    chunks = await spoken(answer)
    assert (answer.method, answer.reason) == ("ngram", "failover")
    assert answer.earlier_tokens >= tokens
    assert joined(chunks) == joined(whole)


def joined(chunks):
    return (
        "".join(chunk.text for chunk in chunks),
        [token for chunk in chunks for token in chunk.token_ids],
        [known.top[0][0] for chunk in chunks for known in chunk.logprobs],
        chunks[-1].finish_reason,
    )


async def test_stop_strings_across_the_break_end_the_answer(ingress, tiny_bundle):
    """Of four characters about every place where a replica may have died."""
    bare = await spoken(await answered(ingress, asked_with_stop()))
    tokens, real = joined(bare)[1], ingress.streams["draft_verify"]
    decode = tiny_bundle.tokenizer().decode
    for cut in range(4, 30, 5):
        at = len(decode(tokens[:cut]))
        stop = joined(bare)[0][at - 2 : at + 2]
        ingress.streams["draft_verify"] = real
        whole = await spoken(await answered(ingress, asked_with_stop(stop)))
        ingress.streams["draft_verify"] = dies_after(real, cut)
        assert joined(await spoken(await answered(ingress, asked_with_stop(stop)))) == joined(whole)


def asked_with_stop(*stop):
    return prompt(sampling=SamplingParams(**LONG, ignore_eos=True, stop=stop))


async def test_a_sampled_answer_repeats_under_its_seed(ingress):
    wishes = SamplingParams(**LONG, ignore_eos=True, temperature=1.0, seed=5)
    ingress.streams["draft_verify"] = dies_after(ingress.streams["draft_verify"], 6)
    texts = {
        joined(await spoken(await answered(ingress, prompt(sampling=wishes))))[0] for _ in "ab"
    }
    assert len(texts) == 1


async def test_usage_counts_each_token_once(ingress):
    asked = HELLO | {"max_tokens": 30, "temperature": 0, "ignore_eos": True}
    plain = (await posted(ingress, "/v1/chat/completions", asked))["usage"]
    ingress.streams["draft_verify"] = dies_after(ingress.streams["draft_verify"], 8)
    streamed = asked | {"stream": True, "stream_options": {"include_usage": True}}
    response = await ingress.http.post("/v1/chat/completions", json=streamed)
    *_, last, done = events(response)
    assert done == "[DONE]"
    usage = json.loads(last)["usage"]
    for count in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert usage[count] == plain[count]
    assert usage["speculative"]["reason"] == "failover"


async def test_what_nobody_can_go_on_with_is_broken_off(ingress):
    async def refusing(request, whole):
        if request.answered_token_ids:
            raise EngineRefusedError("answered_token_ids: not here")
        async for chunk in real(request, whole):
            yield chunk

    real = ingress.streams["naive"]
    ingress.streams |= dict.fromkeys(("ngram", "naive"), refusing)
    ingress.streams["draft_verify"] = dies_after(ingress.streams["draft_verify"], 3)
    answer = await answered(ingress, prompt())
    with pytest.raises(ApiError) as caught:
        await spoken(answer)
    assert caught.value.code == "answer_broken_off"
