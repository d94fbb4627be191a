"""The registry of methods: what an engine accepts of it, and which parameters it obeys."""

import pytest

from schemas import EngineConfig, MethodSpec, SamplingParams
from workers.bundle import Bundle
from workers.loader import load_engine
from workers.methods import METHODS, get_method, refused_field

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


@pytest.mark.parametrize("name", METHODS)
def test_only_what_speculates_in_vllm_refuses(name: str) -> None:
    spec = get_method(name)
    speculates = spec.engine == "vllm" and name != "vllm_naive"
    for field, params in (
        ("min_p", SamplingParams(temperature=1.0, min_p=0.1)),
        ("logit_bias", SamplingParams(logit_bias={7: 1.0})),
    ):
        assert refused_field([spec], params) == (field if speculates else None)
    assert refused_field([spec], SamplingParams(temperature=1.0, top_p=0.5)) is None
