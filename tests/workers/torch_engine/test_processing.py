"""Bias and penalties against a row-by-row reference, for every node of random trees, and the log
probabilities of answers and prompts."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from decoding import decode, hugging_face, request
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling_reference import processed_row

from workers.bundle import Bundle
from workers.torch_engine.interfaces import Proposal, TargetOutput
from workers.torch_engine.logit_processor import make_logit_processor
from workers.torch_engine.processed_logits import process

VOCAB = 11
PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "logit_bias": st.dictionaries(st.integers(0, VOCAB - 1), st.floats(-5, 5), max_size=3),
        "presence_penalty": st.floats(-2, 2),
        "frequency_penalty": st.floats(-2, 2),
        "repetition_penalty": st.floats(0.5, 2),
    },
)
TOKEN_LISTS = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=8)


def sequence(prompt: list[int], output: list[int], params: dict[str, Any]) -> Any:
    asked = request("any", prompt, **params)
    return SimpleNamespace(
        tokens=prompt + output, sampling=asked.sampling, processor=make_logit_processor(asked)
    )


def random_tree(proposal: Proposal, rng: random.Random) -> Proposal:
    for node in range(rng.randrange(0, 7)):
        proposal.add(rng.randrange(VOCAB), rng.randrange(-1, node))
    return proposal


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(TOKEN_LISTS, TOKEN_LISTS, PARAMS), min_size=1, max_size=4), st.integers())
def test_every_node_is_processed_with_its_own_ancestors(members: Any, seed: int) -> None:
    rng, row, proposals = random.Random(seed), 0, []
    for prompt, output, params in members:
        proposal = random_tree(
            Proposal(sequence=sequence(prompt, output, params), plan=None, limit=9), rng
        )
        proposal.row, row = row, row + len(proposal) + 1
        proposals.append(proposal)
    logits = torch.randn(row, VOCAB, generator=torch.Generator().manual_seed(seed % 2**31))
    before = logits.clone()
    after = process(proposals, TargetOutput(logits, {}, {}, {}))
    assert torch.equal(after.raw, before)
    for proposal, (prompt, output, _) in zip(proposals, members, strict=True):
        for node in range(-1, len(proposal)):
            at = proposal.row + 1 + node
            said = output + [proposal.tokens[n] for n in proposal.path_to(node)]
            wanted = processed_row(before[at], prompt, said, proposal.sequence.sampling)
            torch.testing.assert_close(after.logits[at], wanted)


def test_counts_follow_the_output_as_it_grows() -> None:
    grown = sequence([1, 2], [3], {"frequency_penalty": 1.0})
    for tokens in ([], [3, 4], [], [5]):
        grown.tokens += tokens
        output = process(
            [Proposal(sequence=grown, plan=None, limit=0)],
            TargetOutput(torch.zeros(1, VOCAB), {}, {}, {}),
        )
        said = grown.tokens[2:]
        assert output.logits[0].tolist() == [-said.count(token) for token in range(VOCAB)]


METHODS = ["naive", "draft_verify", "ngram"]


@pytest.mark.parametrize("method", METHODS)
async def test_logprobs_are_the_targets_own(load_engine, byte_bundle: Bundle, method: str) -> None:
    engine, prompt = load_engine([method], byte_bundle), list(range(10, 20)) * 2
    wishes = {"temperature": 0.8, "seed": 1, "frequency_penalty": 1.0, "logprobs": 3}
    answer = await decode(engine, method, prompt, max_tokens=30, **wishes)
    model = hugging_face(byte_bundle.part("target"))
    with torch.inference_mode():
        logits = model(torch.tensor([prompt + answer.tokens])).logits[0, len(prompt) - 1 : -1]
    logprobs = logits.log_softmax(-1)
    assert len(answer.logprobs) == len(answer.tokens)
    for row, token, said in zip(logprobs, answer.tokens, answer.logprobs, strict=True):
        assert said.chosen == pytest.approx(float(row[token]), abs=1e-4)
        best = row.topk(3)
        assert [p for _, p in said.top] == pytest.approx(best.values.tolist(), abs=1e-4)
        assert [t for t, _ in said.top] == best.indices.tolist()


READERS = [*METHODS, "eagle3"]
PROMPTS = [[5, 4, 3, 1, 0, 2] * 7, [1, 2, 3], [4]]


def expected(bundle: Bundle, prompt: list[int]) -> torch.Tensor:
    """Return the log probabilities of every next token [tokens - 1, vocab]."""
    with torch.inference_mode():
        return hugging_face(bundle.part("target"))(torch.tensor([prompt])).logits[0].log_softmax(-1)


@pytest.mark.parametrize("chunk", [16, 256])
async def test_prompts_have_hugging_faces(load_engine, six: Bundle, chunk: int) -> None:
    """Read in chunks, in a batch, or from the prefix cache."""
    engine = load_engine(READERS, six, prefill_chunk=chunk, joint_prompt_tokens=8)
    wishes = {"prompt_logprobs": 2, "logprobs": 1, "max_tokens": 6}
    asked = [(method, prompt) for method in READERS for prompt in PROMPTS] * 2
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
