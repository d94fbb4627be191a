"""What ends an answer: stop tokens, least tokens, end tokens that are ignored."""

import asyncio
from typing import Any

import pytest
import torch
from decoding import LOSSLESS, decode, hugging_face

from schemas import DecodeRequest, SamplingParams
from workers.bundle import Bundle

PROMPT = [5, 4, 3, 1, 0, 2] * 3
STOP, LEAST, MOST = 3, 17, 40


@pytest.mark.parametrize(
    "wishes",
    [
        {"stop_token_ids": (STOP,)},
        {"stop_token_ids": (STOP, 1), "min_tokens": LEAST},
        {"stop_token_ids": (STOP,), "min_tokens": MOST, "ignore_eos": True},
        {"stop_token_ids": (STOP,), "min_tokens": LEAST, "temperature": 0.8, "seed": 7},
    ],
)
async def test_every_method_ends_where_plain_decoding_does(load_engine, six, wishes):
    """Drafted tokens beyond the end are cut, and none is an end token before its time."""
    engine = load_engine(LOSSLESS, six)
    asked = [decode(engine, m, PROMPT, max_tokens=MOST, scope=m, **wishes) for m in LOSSLESS]
    plain, *others = await asyncio.gather(*asked)
    ends, least = wishes["stop_token_ids"], wishes.get("min_tokens", 0)
    assert not set(ends) & set(plain.tokens[: max(least, len(plain.tokens) - 1)][:-1])
    assert plain.finish == ("stop" if plain.tokens[-1] in ends else "length")
    assert len(plain.tokens) >= least
    for method, answer in zip(LOSSLESS[1:], others, strict=True):
        assert (answer.tokens, answer.text) == (plain.tokens, plain.text), method
        assert answer.finish == plain.finish
    assert any(sum(answer.drafted) for answer in others)
    assert max(answer.stats.mean_batch for answer in others) > 3
    assert all(len(answer.stats.batch_by_method) > 1 for answer in others)


async def test_least_tokens_are_hugging_faces(load_engine, six: Bundle) -> None:
    ids = torch.tensor([PROMPT])
    expected = hugging_face(six.part("target")).generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=MOST,
        min_new_tokens=LEAST,
        eos_token_id=[STOP],
        do_sample=False,
        pad_token_id=0,
    )
    engine = load_engine(["naive"], six)
    wishes = {"stop_token_ids": (STOP,), "min_tokens": LEAST}
    answer = await decode(engine, "naive", PROMPT, max_tokens=MOST, **wishes)
    assert answer.tokens == expected[0, len(PROMPT) :].tolist()


async def test_an_answer_that_goes_on_elsewhere_counts_from_its_beginning(load_engine, six):
    engine = load_engine(["naive", "draft_verify"], six)
    wishes = {"stop_token_ids": (STOP,), "min_tokens": LEAST, "max_tokens": MOST}
    whole = await decode(engine, "naive", PROMPT, **wishes)
    begun = whole.tokens[:10]
    rest = await decode(engine, "draft_verify", PROMPT, answered=begun, **wishes)
    assert begun + rest.tokens == whole.tokens


async def test_special_tokens_and_stops_in_the_text(load_engine, byte_bundle: Bundle) -> None:
    tokenizer = byte_bundle.tokenizer()
    end = tokenizer.convert_tokens_to_ids("<|user|>")
    bias = {end: 100.0}
    engine = load_engine(["naive"], byte_bundle)

    async def text(**wishes: Any) -> str:
        wishes = {"stop_token_ids": (end,), "logit_bias": bias, "max_tokens": 9} | wishes
        answer = await decode(engine, "naive", [10, 11], **wishes)
        assert answer.tokens[-1] == end
        return answer.text

    assert await text() == ""
    assert await text(skip_special_tokens=False) == ""
    assert await text(include_stop_str_in_output=True) == ""
    assert await text(include_stop_str_in_output=True, skip_special_tokens=False) == "<|user|>"
    shown = await text(skip_special_tokens=False, stop_token_ids=())
    assert shown == "<|user|>" * 9


def test_loads_count_an_open_ended_answer_by_what_is_expected() -> None:
    asked = {"request_id": "a", "method": "naive", "prompt_token_ids": (1,)}
    sampling = SamplingParams(max_tokens=2000)
    assert DecodeRequest(**asked, sampling=sampling).outstanding(500) == 1500
    expected = DecodeRequest(**asked, sampling=sampling, expected_tokens=40)
    assert [expected.outstanding(n) for n in (0, 30, 39, 300, 2000)] == [40, 10, 1, 1, 0]
