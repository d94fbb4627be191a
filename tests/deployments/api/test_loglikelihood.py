"""Log-likelihoods of continuations, asked for as lm-evaluation-harness does."""

import json

import pytest
import torch
from asking import events, posted
from decoding import hugging_face

CONTEXTS = ["The capital of France is", "2 + 2 =", "Once upon a time"]
CONTINUATIONS = [" Paris.", " four", " there was a naïve 😀"]


@pytest.fixture
def pairs(tiny_bundle):
    """Context and continuation as token ids; the last continuation ends the answer."""
    tokenizer = tiny_bundle.tokenizer()

    def ids(text):
        return tokenizer.encode(text, add_special_tokens=False)

    found = [(ids(a), ids(b)) for a, b in zip(CONTEXTS, CONTINUATIONS, strict=True)]
    return [*found, (found[0][0], [*found[0][1], tokenizer.eos_token_id])]


def of_transformers(bundle, context, continuation):
    """The continuation's log-likelihood, and whether it is the model's own choice."""
    ids = [*context, *continuation]
    with torch.inference_mode():
        logits = hugging_face(bundle.part("target"))(torch.tensor([ids])).logits[0]
    rows = logits[len(context) - 1 : -1].log_softmax(-1)
    wanted = torch.tensor(continuation)
    chosen = rows.gather(1, wanted[:, None])[:, 0]
    return float(chosen.sum()), bool((rows.argmax(-1) == wanted).all())


def of_choice(choice, length):
    """As the harness' `parse_logprobs`, with one generated token at the end."""
    said = choice["logprobs"]
    tokens, tops = said["token_logprobs"][length:-1], said["top_logprobs"][length:-1]
    greedy = all(token == max(top.values()) for token, top in zip(tokens, tops, strict=True))
    return sum(tokens), greedy


@pytest.mark.parametrize("method", ["naive", "draft_verify", "ngram"])
async def test_they_are_transformers(ingress, tiny_bundle, pairs, method):
    asked = {
        "model": f"tiny:{method}",
        "prompt": [[*context, *continuation] for context, continuation in pairs],
        "max_tokens": 1,
        "logprobs": 1,
        "seed": 1234,
        "echo": True,
    }
    body = await posted(ingress, "/v1/completions", asked)
    for choice, (context, continuation) in zip(body["choices"], pairs, strict=True):
        total, greedy = of_choice(choice, len(context))
        expected, choosing = of_transformers(tiny_bundle, context, continuation)
        assert total == pytest.approx(expected, abs=1e-3)
        assert greedy == choosing
        assert choice["logprobs"]["token_logprobs"][0] is None
        assert len(choice["logprobs"]["tokens"]) == len(context) + len(continuation) + 1


async def test_a_prompt_that_is_only_read(ingress, pairs):
    """Whole and streamed, with its text and log probabilities and no token of an answer."""
    context, continuation = pairs[0]
    asked = {"model": "tiny", "prompt": "The capital of France is Paris.", "max_tokens": 0}
    body = await posted(ingress, "/v1/completions", asked | {"echo": True, "logprobs": 2})
    [choice] = body["choices"]
    assert (choice["text"], choice["finish_reason"]) == (asked["prompt"], "length")
    assert "".join(choice["logprobs"]["tokens"]) == asked["prompt"]
    assert choice["logprobs"]["text_offset"][1] == len(choice["logprobs"]["tokens"][0])
    usage = body["usage"]
    assert usage["completion_tokens"] == 0
    assert usage["prompt_tokens"] == len(context) + len(continuation)
    asked |= {"echo": True, "logprobs": 2, "stream": True, "return_token_ids": True}
    response = await ingress.http.post("/v1/completions", json=asked)
    first, *rest = [json.loads(piece)["choices"][0] for piece in events(response)[:-1]]
    assert first["text"] == asked["prompt"]
    assert first["logprobs"] == choice["logprobs"]
    assert all(not piece["text"] and not piece.get("token_ids") for piece in rest)
    assert rest[-1]["finish_reason"] == "length"
    silent = await posted(
        ingress, "/v1/completions", {"model": "tiny", "prompt": "a", "max_tokens": 0}
    )
    assert silent["choices"][0]["text"] == ""
