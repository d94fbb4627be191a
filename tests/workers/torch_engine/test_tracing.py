"""Traces: what drafting at every position of a known answer says of decoding it."""

import asyncio
import itertools
import random
from unittest.mock import patch

import pytest
import torch
from decoding import SMALL, decode
from test_demo_bundle import ask, demo
from transformers import LlamaForCausalLM

from router.fit.traced import expected_steps
from schemas import EngineConfig, MethodSpec, SamplingParams
from workers.loader import load_engine
from workers.methods import get_method
from workers.torch_engine import sequence
from workers.torch_engine.tracing.tracer import Tracer

METHODS = ("draft_verify", "ngram", "medusa", "eagle", "eagle2", "eagle3")
CONFIG = EngineConfig.model_validate(SMALL | {"prefill_chunk": 1024})
PROMPTS = [[*range(20, 44), *range(20, 40)], list(range(60, 71)), [5, 6, 7, 5, 6, 7, 5, 6]]


async def _both(bundle, methods, prompts, config, temperature=0.0, max_tokens=24):
    """By method the steps of decoding and those that the traces of the plain answers expect."""
    asked = {"temperature": temperature, "max_tokens": max_tokens}
    generators = map(random.Random, itertools.count())
    engine = load_engine(["naive", *methods], bundle, config)
    with patch.object(sequence, "generator", lambda _: next(generators)):
        plain = [await decode(engine, "naive", p, **asked) for p in prompts]
        real = {m: [await decode(engine, m, p, **asked) for p in prompts] for m in methods}
    engine.close()
    tracer = Tracer([get_method(m) for m in methods], bundle, config, batch=4)
    texts = [
        tracer.read(prompt, answer.tokens, SamplingParams(**asked, seed=0))
        for prompt, answer in zip(prompts, plain, strict=True)
    ]
    found = {}
    for method in methods:
        traces = []
        for first in range(0, len(texts), 4):
            traces += await tracer.trace(method, texts[first : first + 4])
        steps = [
            expected_steps(trace.kept, len(text.answer))
            for trace, text in zip(traces, texts, strict=True)
        ]
        found[method] = (real[method], steps)
    return plain, found


def test_at_temperature_0_a_trace_says_every_decodings_steps(tiny_bundle):
    plain, found = asyncio.run(_both(tiny_bundle, METHODS, PROMPTS, CONFIG))
    for method, (real, steps) in found.items():
        assert [a.tokens for a in real] == [a.tokens for a in plain]
        assert [float(a.stats.target_steps) for a in real] == steps, method
    assert any(sum(steps) < sum(len(a.tokens) for a in plain) for _, steps in found.values())


@pytest.mark.slow
def test_above_it_they_say_the_mean_tokens_per_step_within_two_percent():
    asked = ask(90, 30, 80)
    config = CONFIG.model_copy(update={"max_context": 1024, "kv_slots": 4096})
    prompts = [p for p in asked.prompts if len(p) < 400] * 4
    plain, found = asyncio.run(_both(demo(), METHODS, prompts, config, 0.8, max_tokens=80))
    given = sum(len(answer.tokens) for answer in plain)
    for method, (real, steps) in found.items():
        tokens, decoded = sum(len(a.tokens) for a in real), sum(a.stats.target_steps for a in real)
        assert abs((given / sum(steps)) / (tokens / decoded) - 1.0) < 0.02, method


def test_rejection_sampling_keeps_what_p_and_q_share(six):
    """Summed over all answers, each with its probability: the mass that p and q have in common,
    level by level (arXiv 2211.17192, section 3)."""
    prompt, first = [0, 1, 2, 3, 1], 4
    sampling = SamplingParams(temperature=0.7, max_tokens=8)
    p, q = (_model(six, part) for part in ("target", "draft"))
    tracer = Tracer([get_method("draft_verify")], six, CONFIG, batch=36)
    answers = [(first, x, y) for x, y in itertools.product(range(6), repeat=2)]
    texts = [tracer.read(prompt, answer, sampling) for answer in answers]
    traces = asyncio.run(tracer.trace("draft_verify", texts))
    one = two = 0.0
    for (_, x, y), trace in zip(answers, traces, strict=True):
        chance = p([*prompt, first])[x] * p([*prompt, first, x])[y]
        one += chance * trace.kept[0][0]
        two += chance * (trace.kept[0][1] if len(trace.kept[0]) > 1 else 0.0)
    shared = torch.minimum(p([*prompt, first]), q([*prompt, first]))
    deeper = sum(
        shared[x] * torch.minimum(p([*prompt, first, x]), q([*prompt, first, x])).sum()
        for x in range(6)
    )
    assert one == pytest.approx(float(shared.sum()), abs=1e-4)
    assert two == pytest.approx(float(deeper), abs=4e-3)


def _model(bundle, part):
    model = LlamaForCausalLM.from_pretrained(bundle.part(part), dtype=torch.float32).eval()

    def after(tokens):
        with torch.no_grad():
            return (model(torch.tensor([tokens])).logits[0, -1] / 0.7).softmax(-1)

    return after


def test_confidences_are_the_drafters_favourites(six):
    tracer = Tracer([get_method("draft_verify"), get_method("eagle2")], six, CONFIG, batch=2)
    text = tracer.read([0, 1, 2], [3, 1, 2, 2, 5], SamplingParams(temperature=0.7, max_tokens=8))
    model = LlamaForCausalLM.from_pretrained(six.part("draft"), dtype=torch.float32)
    [trace] = asyncio.run(tracer.trace("draft_verify", [text]))
    with torch.no_grad():
        favourite = model(torch.tensor([[0, 1, 2, 3]])).logits[0, -1].softmax(-1).max()
    assert trace.confidences[0][0] == pytest.approx(float(favourite), abs=1e-4)
    assert len(trace.kept) == len(trace.confidences) == 4
    [other] = asyncio.run(tracer.trace("eagle2", [text]))
    assert all(0.0 < value <= 1.0 for row in other.confidences for value in row)
    assert len(other.confidences[0]) >= 1


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"verifier": "typical", "lossless": False}, "verifier 'typical': an answer tells what"),
        ({"engine": "vllm"}, "only methods of our own engine are traced"),
        ({"drafter": "adaptive"}, "drafts what pays here and now"),
    ],
)
def test_what_an_answer_cannot_tell_is_refused(tiny_bundle, changed, said):
    spec = MethodSpec.model_validate(get_method("medusa").model_dump() | changed)
    with pytest.raises(ValueError, match=said):
        Tracer([spec], tiny_bundle, CONFIG, batch=1)


def test_a_text_that_is_too_long_is_refused(tiny_bundle):
    tracer = Tracer([get_method("ngram")], tiny_bundle, CONFIG, batch=1)
    with pytest.raises(ValueError, match="250 prompt and 10 answer tokens exceed"):
        tracer.read(range(250), range(10), SamplingParams(max_tokens=10))


def test_suffix_knows_answers_that_it_was_traced_on_before_and_no_others(tiny_bundle):
    answer = [*range(100, 130)]
    tracer = Tracer([get_method(m) for m in ("suffix", "ngram")], tiny_bundle, CONFIG, batch=1)
    text = tracer.read([5, 6, 7, 8, *answer[:4]], answer[4:], SamplingParams(max_tokens=26))
    text.p = [1.0] * len(text.p)
    kept = []
    for method in ("ngram", "suffix", "suffix"):
        [trace] = asyncio.run(tracer.trace(method, [text]))
        kept.append(sum(len(position) for position in trace.kept))
    assert kept[1] == 0 < kept[2]


def test_a_drafter_that_is_always_right_is_as_sure_as_that(tiny_bundle):
    """Traced drafts are not verified, and must not be counted as verified ones that were wrong."""
    answer = [*range(100, 106)] * 8
    tracer = Tracer([get_method("suffix")], tiny_bundle, CONFIG, batch=1)
    text = tracer.read([5, 6, 7, *answer[:7]], answer[7:], SamplingParams(max_tokens=41))
    text.p = [1.0] * len(text.p)
    [trace] = asyncio.run(tracer.trace("suffix", [text]))
    assert all(kept and min(kept) == 1.0 for kept in trace.kept[:-1])
    assert min(sure[0] for sure in trace.confidences[20:-1]) > 0.8
