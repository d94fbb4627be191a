"""Drafters of public checkpoints that real vLLM engines decode on CPUs, in float32 against plain
decoding."""

import shutil
from typing import get_args

import pytest
from conftest_bundle import DEMO
from decoding import Answer, assert_greedy, decode_all, vllm_cpu
from deployed_drafters import dflash, drafting, peagle, with_part

from schemas import MethodSpec
from workers.bundle import Bundle, load_bundle
from workers.loader import load_engine
from workers.methods import get_method
from workers.vllm_engine.speculation import FIELDS

pytestmark = pytest.mark.vllm

TOKENS = 40
CONFIG = vllm_cpu(max_batch=16, max_context=512, max_waiting=512, kv_slots=8192)


def test_vllm_has_our_drafters_and_the_fields_of_their_settings() -> None:
    from vllm.config import speculative as config

    assert set(FIELDS) <= {
        name
        for entry in get_args(config.SpeculativeMethod)
        for name in (get_args(entry) or (entry,))
    }
    fields = {field for names in FIELDS.values() for field in names.values()}
    assert fields <= set(config.SpeculativeConfig.__dataclass_fields__)


async def answers(bundle: Bundle, spec: MethodSpec, prompts: list[list[int]]) -> list[Answer]:
    engine = load_engine((spec,), bundle, CONFIG)
    try:
        return await decode_all(engine, [(spec.name, ids) for ids in prompts], TOKENS)
    finally:
        engine.close()


def accepted(found: list[Answer]) -> int:
    return sum(answer.stats.accepted_tokens for answer in found if answer.stats)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "write", "part"),
    [("vllm_peagle", peagle, "peagle"), ("vllm_dflash", dflash, "dflash")],
)
async def test_parallel_drafts_change_no_answer(bundle, prompts, tmp_path, name, write, part):
    write(bundle, tmp_path / part)
    spec = get_method(name)
    found = await answers(with_part(bundle, tmp_path, part), spec, prompts)
    for ids, answer in zip(prompts, found, strict=True):
        assert_greedy(bundle, ids, answer.tokens, TOKENS, ignore_eos=True)
        assert len(answer.stats.drafted_by_position) == spec.settings["stop"]["gamma"]
    # P-EAGLE's first draft token is EAGLE-3's, which was trained; DFlash's weights are random.
    assert (accepted(found) > TOKENS) == (part == "peagle")


@pytest.mark.slow
async def test_a_draft_model_may_have_another_vocabulary(bundle, prompts, tmp_path):
    """The demo with SmolLM2 as its draft model: tokens that both vocabularies have are drafted."""
    other = load_bundle(DEMO.parent / "smollm2")
    if not other.has("target"):
        pytest.skip("SmolLM2 is not imported: make install")
    family = with_part(bundle, tmp_path, "smollm2")
    for part in ("target", "tokenizer"):
        shutil.copytree(other.part(part), tmp_path / "smollm2", dirs_exist_ok=True)
    spec = drafting("vllm_other", "draft_model", use_heterogeneous_vocab=True, part="smollm2")
    found = await answers(family, spec, prompts)
    for ids, answer in zip(prompts, found, strict=True):
        assert_greedy(bundle, ids, answer.tokens, TOKENS, ignore_eos=True)
    assert accepted(found) > TOKENS
