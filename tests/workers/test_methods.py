"""The registry of methods, and what an engine accepts of it."""

import pytest

from schemas import EngineConfig, MethodSpec
from workers.bundle import Bundle
from workers.loader import load_engine

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
