"""`bench decode --quality`: distances from the target's distribution, perplexity by precision."""

import json
import math

import numpy as np
import pytest
import torch
from conftest_bundle import DEMO
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.bench.decode.quality import Reading, excess_nats, figures_of, read_answer
from workers.bundle import load_bundle
from workers.chat_template import encode_chat

ANSWERS, TOKENS, VOCAB = 100, 50, 12


def places(seed):
    """Distributions of a target [answers, tokens, vocab]."""
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(VOCAB, 0.5), (ANSWERS, TOKENS)).clip(1e-9), rng


def spoken(p, q, rng):
    """What a target of these p makes of tokens that were drawn from q."""
    drawn = (q.cumsum(-1) > rng.random((ANSWERS, TOKENS, 1)) * q.sum(-1, keepdims=True)).argmax(-1)
    return [
        read_answer(torch.from_numpy(np.log(own)), tokens.tolist(), 1.0)
        for own, tokens in zip(p, drawn, strict=True)
    ]


def normal(weights):
    return weights / weights.sum(-1, keepdims=True)


@pytest.mark.parametrize("seed", range(5))
def test_the_targets_own_tokens_are_at_no_distance(seed):
    p, rng = places(seed)
    readings = spoken(p, p, rng)
    found, (low, high) = excess_nats(readings)
    assert low <= found <= high
    # four times the deviation of 5,000 tokens
    assert abs(found) < 0.07


def test_drafts_that_the_target_would_not_say_are_far_and_favourites_below():
    p, rng = places(3)
    lossy = spoken(p, normal(0.5 * p + 0.5 / VOCAB), rng)
    sharp = spoken(p, normal(p**3), rng)
    assert excess_nats(lossy)[1][0] > 0.3
    assert excess_nats(sharp)[1][1] < -0.3


@given(st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_greedy_answers_are_judged_by_the_favourite(seed):
    rng = np.random.default_rng(seed)
    logits = torch.from_numpy(rng.normal(size=(6, VOCAB)))
    best = logits.argmax(-1).tolist()
    assert read_answer(logits, best, 0.0).nats == pytest.approx(
        read_answer(logits, best, 0.0).expected
    )
    other = [(token + 1) % VOCAB for token in best]
    reading = read_answer(logits, other, 0.0)
    gaps = logits.max(-1).values - logits.gather(1, torch.tensor(other)[:, None])[:, 0]
    assert reading.nats - reading.expected == pytest.approx(gaps.numpy(), abs=1e-5)


def test_readings_are_under_the_requests_temperature():
    logits = torch.tensor([[1.0, 0.0, -1.0]])
    reading = read_answer(logits, [1], 0.5)
    p = torch.tensor([2.0, 0.0, -2.0]).softmax(-1).double().numpy()
    assert reading.nats == pytest.approx([-np.log(p[1])], abs=1e-6)
    assert reading.expected == pytest.approx([-(p * np.log(p)).sum()], abs=1e-6)


def test_a_token_weighs_the_same_in_every_answer():
    logits = torch.zeros(3, 2, dtype=torch.float64)
    logits[:, 1] = 1.0
    long, short = read_answer(logits, [0, 0, 0], 0.0), read_answer(logits[:1], [1], 0.0)
    found, (low, high) = excess_nats([long, short])
    assert found == pytest.approx(0.75, abs=1e-6)
    assert (low, high) == pytest.approx((0.0, 1.0), abs=1e-6)


ROWS = [
    {"id": "a", "domain": "math", "prompt": "What is 12 + 30?", "response": "12 + 30 = 42."},
    {"id": "b", "domain": "qa", "prompt": "Name three fruits.", "response": "Apples and pears."},
    {"id": "c", "domain": "qa", "prompt": "This prompt has no response."},
]


@pytest.fixture
def prompts(tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return file


def test_perplexity_is_that_of_transformers(specadapt, prompts):
    from transformers import AutoModelForCausalLM

    command = ["bench", "decode", "--bundle", DEMO, "--prompts", prompts, "--peers", "none"]
    command += ["--methods", "naive,fuzzy", "--dtype", "float32", "--max-tokens", 24]
    figures = specadapt.json(*command, "--repeats", 1, "--threads", 1, "--quality")["quality"]
    lossless, lossy = figures["methods"]["naive"], figures["methods"]["fuzzy"]
    assert lossless["excess_nats"] == pytest.approx(0.0, abs=1e-4)
    assert lossy["excess_nats"] > lossless["excess_nats"]
    bundle = load_bundle(DEMO)
    model = AutoModelForCausalLM.from_pretrained(bundle.part("target"), dtype=torch.float32)
    tokenizer, nats, count = bundle.tokenizer(), 0.0, 0
    for row in ROWS[:2]:
        asked = [{"role": "user", "content": row["prompt"]}]
        before = encode_chat(tokenizer, asked, True)
        spoken = {"role": "assistant", "content": row["response"]}
        whole = torch.tensor([encode_chat(tokenizer, [*asked, spoken], False)])
        labels = whole.clone()
        labels[:, : len(before)] = -100
        tokens = whole.shape[1] - len(before)
        with torch.inference_mode():
            nats += tokens * float(model(whole, labels=labels).loss)
        count += tokens
    plain, rounded = figures["precisions"]["float32"], figures["precisions"]["int8"]
    assert plain["nats_per_token"] == pytest.approx(nats / count, abs=2e-4)
    assert (plain["perplexity_ratio"], plain["same_best"], plain["responses"]) == (1.0, 1.0, 2)
    assert 0.8 < rounded["perplexity_ratio"] < 1.25


def test_a_ratio_weighs_tokens_and_has_an_interval():
    def reading(nats, best):
        return Reading(np.array(nats), np.zeros(len(nats)), np.array(best))

    first = [reading([0.5, 1.5], [1, 2]), reading([1.0] * 4, [3, 4, 5, 6])]
    other = [reading([1.2, 2.0], [1, 0]), reading([1.0] * 4, [3, 4, 5, 0])]
    found = figures_of(first, other)
    assert found["nats_per_token"] == pytest.approx(1.2)
    assert found["perplexity_ratio"] == pytest.approx(math.exp(0.2), abs=1e-4)
    assert found["perplexity_ratio_ci95"] == pytest.approx([1.0, math.exp(0.6)], abs=1e-4)
    assert found["same_best"] == pytest.approx(4 / 6, abs=1e-4)
