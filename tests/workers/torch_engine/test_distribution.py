"""Sampled answers follow the target's own distribution, and wrong rules are found out.

A vocabulary of five: the probability of every answer of four tokens is known exactly.
"""

import asyncio
import itertools
from collections import Counter
from pathlib import Path

import odd_parts  # noqa: F401 (registers its parts)
import pytest
import torch
from conftest_bundle import byte_tokenizer, make_bundle
from decoding import decode, hugging_face
from scipy.stats import chisquare
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from schemas import MethodSpec
from workers.bundle import Bundle

VOCAB = 5
TOKENS = 4
SAMPLES = 1500
PROMPT = [0, 1, 0, 1, 2]
WRONG, RIGHT = 1e-6, 1e-3


def spec(name: str, drafter: str, verifier: str) -> MethodSpec:
    looking_up = {"drafter": {"max_n": 2, "min_n": 1}} if drafter == "ngram" else {}
    return MethodSpec(
        name=name,
        drafter=drafter,
        verifier=verifier,
        lossless=False,
        source="test",
        settings={"stop": {"gamma": 3}} | looking_up,
    )


RIGHT_SPECS = [
    spec("plain", "none", "greedy"),
    spec("rejection", "draft_model", "rejection"),
    spec("matching", "draft_model", "greedy"),
    spec("one_hot", "ngram", "one_hot"),
    spec("chosen_by_rejection", "ngram", "rejection"),
    spec("siblings", "test_tree", "one_hot"),
    spec("sibling_matching", "test_tree", "greedy"),
]
WRONG_SPECS = [
    spec("upside_down", "draft_model", "test_upside_down"),
    spec("no_residual", "draft_model", "test_no_residual"),
    spec("no_residual_lookup", "ngram", "test_no_residual"),
]
WARPS = [{"temperature": 0.7, "top_p": 0.8}, {"temperature": 1.5, "top_k": 3}]


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A vocabulary of five and a draft that is often wrong."""
    folder = tmp_path_factory.mktemp("bundle") / "five"
    return make_bundle(folder, tokenizer=byte_tokenizer(), vocab=VOCAB, noise=0.6, seed=5)


def exact(folder: Path, sampling: dict) -> dict[tuple[int, ...], float]:
    """The probability of every answer, by Hugging Face's model and its own warpers."""
    model = hugging_face(folder)
    answers = list(itertools.product(range(VOCAB), repeat=TOKENS))
    ids = torch.tensor([[*PROMPT, *answer] for answer in answers])
    with torch.inference_mode():
        logits = model(ids).logits[:, len(PROMPT) - 1 : -1].double()
    rows = TemperatureLogitsWarper(sampling.get("temperature", 1.0))(
        None, logits.reshape(-1, VOCAB)
    )
    if "top_k" in sampling:
        rows = TopKLogitsWarper(sampling["top_k"])(None, rows)
    if "top_p" in sampling:
        rows = TopPLogitsWarper(sampling["top_p"])(None, rows)
    p = rows.softmax(-1).view(len(answers), TOKENS, VOCAB)
    chance = p.gather(2, torch.tensor(answers)[:, :, None]).prod(1).view(-1)
    return dict(zip(answers, chance.tolist(), strict=True))


async def p_value(load_engine, bundle: Bundle, method: MethodSpec, sampling: dict) -> float:
    """Chi-square of many answers against the exact distribution, rare answers pooled."""
    engine = load_engine([method], bundle, max_batch=64, max_waiting=SAMPLES, kv_slots=64 * 256)
    options = {"temperature": 1.0} | sampling
    jobs = [
        decode(engine, method.name, PROMPT, max_tokens=TOKENS, seed=seed, **options)
        for seed in range(SAMPLES)
    ]
    answers = Counter(tuple(answer.tokens) for answer in await asyncio.gather(*jobs))
    chances = exact(bundle.part("target"), sampling)
    if any(chances[answer] == 0.0 for answer in answers):
        return 0.0
    seen, expected, rare_seen, rare_expected = [], [], 0, 0.0
    for answer, chance in chances.items():
        if chance * SAMPLES >= 8:
            seen.append(answers[answer])
            expected.append(chance * SAMPLES)
        else:
            rare_seen += answers[answer]
            rare_expected += chance * SAMPLES
    if rare_expected >= 1:
        seen.append(rare_seen)
        expected.append(rare_expected)
    scale = sum(seen) / sum(expected)
    return float(chisquare(seen, [e * scale for e in expected]).pvalue)


@pytest.mark.parametrize("method", RIGHT_SPECS, ids=lambda s: s.name)
async def test_right_rules_pass(load_engine, five: Bundle, method: MethodSpec) -> None:
    assert await p_value(load_engine, five, method, {}) > RIGHT


@pytest.mark.parametrize("sampling", WARPS, ids=str)
@pytest.mark.parametrize("method", RIGHT_SPECS[1:4:2], ids=lambda s: s.name)
async def test_right_rules_pass_under_top_p_and_top_k(
    load_engine, five: Bundle, method: MethodSpec, sampling: dict
) -> None:
    assert await p_value(load_engine, five, method, sampling) > RIGHT


@pytest.mark.parametrize("method", WRONG_SPECS, ids=lambda s: s.name)
async def test_wrong_rules_are_found_out(load_engine, five: Bundle, method: MethodSpec) -> None:
    assert await p_value(load_engine, five, method, {}) < WRONG
