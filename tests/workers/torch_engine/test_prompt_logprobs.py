"""Log probabilities of prompts that are read in chunks, in a batch, or from the prefix cache."""

import asyncio

import pytest
import torch
from decoding import decode, hugging_face

from workers.bundle import Bundle

METHODS = ["naive", "draft_verify", "eagle3", "ngram"]
PROMPTS = [[5, 4, 3, 1, 0, 2] * 7, [1, 2, 3], [4]]


def expected(bundle: Bundle, prompt: list[int]) -> torch.Tensor:
    """Return the log probabilities of every next token [tokens - 1, vocab]."""
    with torch.inference_mode():
        return hugging_face(bundle.part("target"))(torch.tensor([prompt])).logits[0].log_softmax(-1)


@pytest.mark.parametrize("chunk", [16, 256])
async def test_prompts_have_hugging_faces(load_engine, six: Bundle, chunk: int) -> None:
    engine = load_engine(METHODS, six, prefill_chunk=chunk, joint_prompt_tokens=8)
    wishes = {"prompt_logprobs": 2, "logprobs": 1, "max_tokens": 6}
    asked = [(method, prompt) for method in METHODS for prompt in PROMPTS] * 2
    answers = await asyncio.gather(*(decode(engine, m, p, **wishes) for m, p in asked))
    for (_, prompt), answer in zip(asked, answers, strict=True):
        reference = expected(six, prompt)
        assert len(answer.prompt_logprobs) == len(prompt) - 1
        for row, token, said in zip(reference, prompt[1:], answer.prompt_logprobs, strict=False):
            assert said.chosen == pytest.approx(float(row[token]), abs=1e-4)
            assert len(said.top) == 2
            assert said.top[0][1] == pytest.approx(float(row.max()), abs=1e-4)
        assert answer.logprobs[0].chosen == pytest.approx(float(reference[-1].max()), abs=1e-4)
        plain = await decode(engine, "naive", prompt, max_tokens=6)
        assert answer.tokens == plain.tokens
        assert plain.prompt_logprobs == []
