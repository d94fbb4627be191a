"""The registry of methods, and what an engine accepts of it."""

import pytest

from schemas import EngineConfig, MethodSpec
from workers.bundle import Bundle
from workers.loader import load_engine
from workers.methods import METHODS, get_method


def test_the_methods() -> None:
    assert list(METHODS)[:4] == ["naive", "draft_verify", "ngram", "suffix"]
    assert {"specinfer", "medusa", "medusa_typical", "eagle", "eagle2", "eagle3"} <= METHODS.keys()
    lossy = {name for name, spec in METHODS.items() if not spec.lossless}
    assert lossy == {"fuzzy", "medusa_typical"}
    assert len({spec.settings_hash() for spec in METHODS.values()}) == len(METHODS)
    assert all(spec.source for spec in METHODS.values())
    with pytest.raises(ValueError, match="unknown method 'turbo': choose from naive"):
        get_method("turbo")


HASHES = {
    "naive": "d74800bb9853",
    "draft_verify": "47bb3a81d97e",
    "ngram": "ae17c5aa70be",
    "suffix": "da6f735ac5b2",
    "adaptive": "8f2df48bda7e",
    "adaptive_length": "bb0d21b1f9a1",
    "fuzzy": "f50fc98fc44f",
    "specinfer": "ac0f3d0f4be1",
    "medusa": "e86fb2d62f0d",
    "medusa_typical": "47b3124b87ac",
    "eagle": "54479380d67e",
    "eagle2": "1b2185eeefc8",
    "eagle3": "44760eb1a557",
    "vllm_naive": "d46f87c3355a",
    "vllm_draft": "56bda91f2aa1",
    "vllm_ngram": "0552d6606dc5",
    "vllm_suffix": "270e8a5677fd",
    "vllm_eagle": "3d6de8e17f4f",
    "vllm_eagle3": "dd5fa71a213f",
    "vllm_medusa": "407e68564035",
    "vllm_adaptive": "c1998be4f5dd",
    "vllm_mtp": "61b8f2d48f53",
    "vllm_peagle": "e56491f5e197",
    "vllm_dflash": "cfc7e9c520ba",
}
"""Routing tables and profiles on disk name methods' settings by these."""


def test_settings_hashes_stay() -> None:
    assert {name: spec.settings_hash() for name, spec in METHODS.items()} == HASHES


def test_specs_that_name_the_former_selector_are_read() -> None:
    spec = MethodSpec.model_validate(METHODS["eagle3"].model_dump() | {"selector": "constant"})
    assert spec == METHODS["eagle3"]
    with pytest.raises(ValueError, match="selector"):
        MethodSpec.model_validate(spec.model_dump() | {"selector": "random"})


VLLM = MethodSpec(name="elsewhere", engine="vllm", lossless=True, source="test")
ODD = MethodSpec(name="odd", drafter="oracle", lossless=True, source="test")


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        ([], "name at least one"),
        (["naive", "naive"], "each of them once"),
        (["turbo"], "unknown method"),
        (["naive", VLLM], "methods of one kind, not of torch, vllm"),
        ([ODD], "unknown drafter 'oracle': this engine has"),
    ],
)
def test_portfolios_that_cannot_be_loaded(tiny_bundle: Bundle, methods: list, said: str) -> None:
    config = EngineConfig(device="cpu", kv_slots=256, max_context=256)
    with pytest.raises(ValueError, match=said):
        load_engine(methods, tiny_bundle, config)
