"""A real vLLM engine with EAGLE-3 on the demo bundle, in float32 against Hugging Face."""

import asyncio
import contextlib
import json

import psutil
import pytest
import torch
from decoding import assert_greedy, decode, hugging_face, request, until, vllm_cpu

from schemas import Grammar
from workers.end_tokens import end_tokens
from workers.engine import EngineBusyError, EngineRefusedError

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="module")]

METHOD = "vllm_eagle3"
METHODS = (METHOD,)
CONFIG = vllm_cpu(max_batch=4, max_waiting=2, max_context=512, kv_slots=4096, prefix_cache=False)
DEADLINE = 60.0


async def test_greedy_tokens_are_hugging_faces(engine, bundle, prompts):
    answers = await asyncio.gather(
        *(decode(engine, METHOD, ids, max_tokens=48) for ids in prompts[:4])
    )
    answers += [await decode(engine, METHOD, ids, max_tokens=48) for ids in prompts[4:]]
    for ids, answer in zip(prompts, answers, strict=True):
        assert_greedy(bundle, ids, answer.tokens, 48)
        assert answer.text == bundle.tokenizer().decode(answer.tokens, skip_special_tokens=True)


async def test_stop_tokens_and_least_tokens_are_plain_decodings(engine, bundle, prompts):
    plain = await decode(engine, METHOD, prompts[0], max_tokens=40, ignore_eos=True)
    stop = plain.tokens[11]
    cut = await decode(engine, METHOD, prompts[0], max_tokens=40, stop_token_ids=(stop,))
    assert cut.tokens == plain.tokens[: plain.tokens.index(stop) + 1]
    assert cut.finish == "stop"
    wishes = {"stop_token_ids": (stop,), "min_tokens": 20, "max_tokens": 30}
    later = await decode(engine, METHOD, prompts[0], **wishes)
    ids = torch.tensor([prompts[0]])
    expected = hugging_face(bundle.part("target")).generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=30,
        min_new_tokens=20,
        eos_token_id=[stop, *end_tokens(bundle)],
        do_sample=False,
        pad_token_id=0,
    )
    assert later.tokens == expected[0, len(prompts[0]) :].tolist()


async def test_log_probabilities_of_a_prompt(engine, bundle, prompts):
    answer = await decode(engine, METHOD, prompts[0], max_tokens=4, prompt_logprobs=1)
    with torch.inference_mode():
        logits = hugging_face(bundle.part("target"))(torch.tensor([prompts[0]])).logits[0]
    rows = logits.log_softmax(-1)
    assert len(answer.prompt_logprobs) == len(prompts[0]) - 1
    for row, token, said in zip(rows, prompts[0][1:], answer.prompt_logprobs, strict=False):
        assert said.chosen == pytest.approx(float(row[token]), abs=1e-3)


async def test_statistics_agree_with_the_tokens_and_with_each_other(engine, prompts):
    answer = await decode(engine, METHOD, prompts[0], max_tokens=40, ignore_eos=True)
    stats = answer.stats
    assert stats.output_tokens == len(answer.tokens) == len(answer.drafted) == 40
    assert stats.accepted_tokens == sum(answer.drafted) == sum(stats.accepted_by_position)
    assert stats.drafted_tokens == sum(stats.drafted_by_position)
    own = answer.drafted.count(False)
    assert stats.target_steps in (own, own + 1), "the last step may be cut before its own token"
    assert 1.3 < 40 / stats.target_steps < 5, "EAGLE-3 has not drafted"
    assert 0 < stats.first_token_seconds < stats.total_seconds
    assert stats.decode_seconds <= stats.total_seconds
    assert answer.finish == stats.finish_reason == "length"


async def test_a_stop_string_ends_the_answer_before_it(engine, prompts):
    whole = await decode(engine, METHOD, prompts[0], max_tokens=40, ignore_eos=True)
    stop = whole.text[12:16]
    cut = await decode(engine, METHOD, prompts[0], max_tokens=40, ignore_eos=True, stop=(stop,))
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert cut.finish == "stop"
    await until(lambda: engine.load().running == 0)


async def test_log_probabilities_are_the_targets(engine, prompts):
    answer = await decode(engine, METHOD, prompts[1], max_tokens=8, logprobs=2, ignore_eos=True)
    assert len(answer.logprobs) == 8
    for token, said in zip(answer.tokens, answer.logprobs, strict=True):
        (best, best_logprob), (_, second) = said.top[:2]
        assert best == token
        assert best_logprob == pytest.approx(said.chosen)
        assert 0 >= said.chosen >= second


async def test_a_missing_log_probability_ends_the_answer_with_an_error(
    engine, prompts, monkeypatch
):
    from workers.vllm_engine.answer import VllmAnswer

    step = VllmAnswer.step

    def without(answer, output):
        output.outputs[0].logprobs = [None] * len(output.outputs[0].token_ids)
        return step(answer, output)

    monkeypatch.setattr(VllmAnswer, "step", without)
    answer = await decode(engine, METHOD, prompts[1], max_tokens=8, logprobs=2)
    assert (answer.finish, answer.tokens) == ("error", [])
    assert "no log probability" in answer.error
    monkeypatch.undo()
    await until(lambda: engine.load().running == 0)
    assert (await decode(engine, METHOD, prompts[1], max_tokens=8)).finish is not None


async def test_a_grammar_is_followed_under_speculation(engine, prompts):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    closed = json.dumps(schema | {"additionalProperties": False})
    for grammar in (
        Grammar(kind="json_schema", text=closed),
        Grammar(kind="regex", text="[0-9]{3}-[0-9]{2}"),
    ):
        answer = await decode(engine, METHOD, prompts[2], max_tokens=64, grammar=grammar)
        if grammar.kind == "regex":
            assert [len(part) for part in answer.text.split("-")] == [3, 2]
        else:
            assert isinstance(json.loads(answer.text)["a"], int)


async def test_a_grammar_that_gets_stuck_is_the_requests_fault(engine, prompts):
    """Three digits, then a terminal that nothing matches."""
    stuck = Grammar(kind="lark", text="start: /[0-9]{3}/ T\nT: /a/ & /b/")
    asked = request(METHOD, prompts[2], max_tokens=64, grammar=stuck)
    *_, last = [chunk async for chunk in engine.generate(asked)]
    assert (last.finish_reason, last.request_fault) == ("error", True)
    assert last.error.startswith("grammar: ")
    assert engine.load().healthy
    assert (await decode(engine, METHOD, prompts[1], max_tokens=8)).finish is not None


async def test_text_that_goes_on_for_ever_is_not_looked_ahead_to(engine, prompts):
    """Nothing comes behind the b's: llguidance would look for their end in one mask."""
    grammar = Grammar(kind="lark", text='start: /[0-9]{2}/ /b+/ "b"')
    answer = await decode(engine, METHOD, prompts[2], max_tokens=20, grammar=grammar)
    assert answer.finish == "length"
    assert set(answer.text[2:]) == {"b"}


async def test_a_closed_stream_frees_the_engine_and_disturbs_nobody(engine, prompts):
    alone = await decode(engine, METHOD, prompts[4], max_tokens=48)
    kept, left = await asyncio.gather(
        decode(engine, METHOD, prompts[4], max_tokens=48),
        decode(engine, METHOD, prompts[5], max_tokens=300, stop_after=10, ignore_eos=True),
    )
    assert kept.tokens == alone.tokens
    assert 10 <= len(left.tokens) < 300
    await until(lambda: engine.load().running == 0)
    load = engine.load()
    assert (load.running, load.waiting, load.outstanding_tokens) == (0, 0, 0)
    assert load.healthy
    assert load.recent_step_seconds[METHOD] > 0
    assert load.free_slots > 3000


async def test_what_cannot_be_answered_is_refused_by_name(engine, prompts):
    for sampling, field in (
        ({"min_p": 0.1, "temperature": 1.0}, "min_p"),
        ({"logit_bias": {3: 1.0}}, "logit_bias"),
        ({"max_tokens": 512}, "max_tokens"),
        ({"grammar": Grammar(kind="regex", text="[")}, "grammar"),
    ):
        with pytest.raises(EngineRefusedError, match=field):
            await decode(engine, METHOD, prompts[0], **sampling)
    with pytest.raises(EngineRefusedError, match="prompt_token_ids"):
        await decode(engine, METHOD, [999_999], max_tokens=4)
    with pytest.raises(EngineRefusedError, match="vllm_naive"):
        await decode(engine, "vllm_naive", prompts[0], max_tokens=4)
    assert engine.load().healthy


async def test_a_full_waiting_line_refuses(engine, prompts):
    many = [
        decode(engine, METHOD, ids, max_tokens=64, ignore_eos=True) for ids in (prompts * 2)[:12]
    ]
    answers = await asyncio.gather(*many, return_exceptions=True)
    busy = [a for a in answers if isinstance(a, EngineBusyError)]
    assert busy
    assert len(answers) - len(busy) >= CONFIG.max_batch + CONFIG.max_waiting
    assert all(isinstance(a, EngineBusyError) or a.finish == "length" for a in answers)


async def test_a_dead_engine_ends_its_answers_and_says_so(engine, prompts):
    """Last: its scheduler's process is killed in the middle of an answer."""
    started = [p for p in psutil.Process().children() if "EngineCore" in p.name()]
    # Other modules' engines may still run.
    scheduler = max(started, key=psutil.Process.create_time)
    mine = [scheduler, *scheduler.children(recursive=True)]
    asked = request(METHOD, prompts[0], max_tokens=400, ignore_eos=True)
    async with contextlib.aclosing(engine.generate(asked)) as chunks:
        async for chunk in chunks:
            if chunk.finish_reason is not None:
                break
            if scheduler.is_running():
                scheduler.kill()
    assert chunk.finish_reason == "error"
    assert "vLLM" in chunk.error
    assert not engine.load().healthy
    engine.close()
    _, alive = psutil.wait_procs(mine, timeout=DEADLINE)
    assert not alive
