"""`bench decode --quality`: perplexity of given responses by precision, and distances."""

import json
import math

import numpy as np
import pytest
import torch
from conftest_bundle import DEMO

from ops.bench.decode.quality import Reading, figures_of
from workers.bundle import load_bundle
from workers.chat_template import encode_chat

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
