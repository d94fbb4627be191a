"""A real vLLM engine whose adaptive method drafts by whom that pays, in a batch with others."""

import asyncio
from types import SimpleNamespace

import pytest
from conftest_bundle import byte_tokenizer
from decoding import assert_greedy, decode, decode_all

from schemas import DecodeRequest, SamplingParams

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="package")]

METHODS = ("vllm_adaptive", "vllm_naive", "vllm_ngram", "vllm_eagle3")
TOKENS = 32


async def test_every_answer_is_the_plain_one_alone_and_among_others(engine, bundle, prompts):
    for jobs in (
        [("vllm_adaptive", ids) for ids in prompts[:1]],
        [("vllm_adaptive", ids) for ids in prompts],
        [(method, ids) for ids in prompts[:4] for method in METHODS],
    ):
        answers = await decode_all(engine, jobs, TOKENS)
        for (_, ids), one in zip(jobs, answers, strict=True):
            assert_greedy(bundle, ids, one.tokens, TOKENS, ignore_eos=True)


async def test_statistics_say_who_drafted(engine, prompts, monkeypatch):
    """Every step is somebody's, and all that was drafted and accepted."""
    # A busy machine's step may be longer than an answer waits for them.
    monkeypatch.setattr("workers.vllm_engine.engine.AUTHORS_SECONDS", 60.0)
    jobs = [("vllm_adaptive", ids) for ids in prompts] + [("vllm_ngram", prompts[0])]
    answers = await decode_all(engine, jobs, 2 * TOKENS)
    assert answers.pop().stats.by_drafter == {}
    for one in answers:
        counted = one.stats.by_drafter
        assert counted.keys() <= {"none", "suffix", "vllm_eagle3", "vllm_medusa"}
        assert sum(of.steps for of in counted.values()) == one.stats.target_steps - 1
        assert sum(of.drafted_tokens for of in counted.values()) == one.stats.drafted_tokens
        assert sum(of.accepted_tokens for of in counted.values()) == one.stats.accepted_tokens
        for name, of in counted.items():
            assert (of.drafted_tokens > 0) == (name != "none")
    assert any(one.stats.drafted_tokens for one in answers)


def an_answer(**sampling):
    """Of a request of the adaptive method, told nothing yet."""
    from workers.engine_load import EngineLoad
    from workers.vllm_engine.answer import VllmAnswer

    asked = DecodeRequest(
        request_id="r",
        method="vllm_adaptive",
        prompt_token_ids=(1, 2),
        sampling=SamplingParams(max_tokens=TOKENS, **sampling),
    )
    return VllmAnswer(asked, byte_tokenizer().backend_tokenizer, (), EngineLoad())


@pytest.mark.parametrize("told", ["late", "never"])
async def test_an_answer_ends_though_nobody_says_who_drafted(monkeypatch, told):
    from workers.vllm_engine import engine as module

    async def rpc(_name, args):  # noqa: ARG001
        if told == "never":
            raise RuntimeError("the engine's process has died")
        await asyncio.Event().wait()

    monkeypatch.setattr(module, "AUTHORS_SECONDS", 0.01)
    engine = object.__new__(module.VllmEngine)
    engine._specs = {"vllm_adaptive": SimpleNamespace(drafter=module.ADAPTIVE)}
    engine._llm = SimpleNamespace(collective_rpc=rpc)
    answer = an_answer()
    last = answer.failed("the end")
    assert await engine._with_drafters(last, answer) is last


async def test_a_request_tells_the_drafters_its_scope():
    """Whose answers are drafted from is tested in test_adaptive_rows.py; what steps cost decides
    whether anything is, so that no count of steps could be."""
    from workers.vllm_engine.answer import sampling_params
    from workers.vllm_engine.drafting.step import Step

    asked = DecodeRequest(
        request_id="r",
        method="vllm_adaptive",
        prompt_token_ids=(1, 2),
        scope="a",
        kept=False,
        sampling=SamplingParams(temperature=0.8),
    )
    runner = SimpleNamespace(
        input_batch=SimpleNamespace(req_ids=["r", "other"], vocab_size=100),
        requests={
            "r": SimpleNamespace(sampling_params=sampling_params(asked, ())),
            "other": SimpleNamespace(sampling_params=None),
        },
    )
    step = Step(runner, *[None] * 7)
    assert step.methods() == ["vllm_adaptive", None]
    assert step.asked(0) == ("r", "a")
    assert step.asked(1) == ("", "other"), "an answer without a scope is for nobody else"
    assert [step.greedy(row) for row in (0, 1)] == [False, True]
    assert [step.kept(row) for row in (0, 1)] == [False, True]
    runner.requests["r"].sampling_params.extra_args["specadapt_kept"] = 0.0  # as a server reads it
    assert not step.kept(0)


@pytest.mark.parametrize("predicted", [3, "ab", ["a"], [1, None], [1, 100], [-1], {"1": 1}])
async def test_what_a_client_of_vllms_server_names_cannot_break_a_step(predicted):
    from workers.vllm_engine.drafting.step import Step

    extra = {"specadapt_predicted": predicted, "specadapt_scope": [1], "specadapt_request": [2]}
    params = SimpleNamespace(extra_args=extra)
    runner = SimpleNamespace(
        input_batch=SimpleNamespace(req_ids=["r"], vocab_size=100),
        requests={"r": SimpleNamespace(sampling_params=params)},
    )
    step = Step(runner, *[None] * 7)
    assert step.asked(0) == ("[2]", "r")
    assert not step.predicted(0)
    extra["specadapt_predicted"] = [0, 99]
    assert step.predicted(0) == [0, 99]


async def test_a_sampled_answer_ends_as_it_should(engine, prompts):
    answer = await decode(
        engine, "vllm_adaptive", prompts[2], max_tokens=TOKENS, temperature=0.8, seed=3
    )
    assert answer.finish in ("stop", "length")
    assert 1 <= len(answer.tokens) <= TOKENS


@pytest.mark.parametrize("method", ["vllm_eagle3", "vllm_ngram"])
async def test_a_sampled_answer_accepts_drafts_as_often_as_its_target_does(engine, prompts, method):
    """At a temperature that is nearly 0 a draw is the best token nearly always."""
    by_temperature = {}
    for temperature in (0.0, 0.01):
        jobs = [(method, ids) for ids in prompts]
        answers = await decode_all(engine, jobs, TOKENS, temperature=temperature)
        by_temperature[temperature] = sum(one.stats.accepted_tokens for one in answers)
    assert by_temperature[0.01] == pytest.approx(by_temperature[0.0], rel=0.1)
