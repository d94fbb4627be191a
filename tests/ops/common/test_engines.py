"""Which engines a measurement loads, and that each request reaches its own."""

from dataclasses import replace

import pytest

from ops.common.decoding import Engines, answer_to, engines_of, portfolios, request_of
from ops.common.settings import Setup, with_baseline, with_places
from schemas import EngineConfig, SamplingParams
from workers.loader import load_engine
from workers.methods import get_method

TORCH, VLLM = ("naive", "ngram"), ("vllm_naive", "vllm_ngram")
SHORT = request_of("short", "naive", [1, 2], SamplingParams(max_tokens=2))


@pytest.fixture
def setup(tiny_bundle):
    config = EngineConfig(dtype="float32", max_context=256, max_batch=4)

    def of(*methods: str) -> Setup:
        return Setup(tiny_bundle.path, tuple(map(get_method, methods)), config)

    return of


def names(setup: Setup) -> list[list[str]]:
    return [[spec.name for spec in specs] for specs in portfolios(setup)]


def test_methods_of_torch_share_an_engine_and_each_of_vllm_has_its_own(setup):
    mixed = setup("vllm_naive", "naive", "vllm_ngram", "ngram")
    assert names(mixed) == [["vllm_naive"], ["naive", "ngram"], ["vllm_ngram"]]
    assert names(replace(mixed, shared=True)) == [[*VLLM], [*TORCH]]


def test_the_plain_method_is_of_the_engine_that_is_there(setup):
    assert with_baseline(setup("vllm_ngram")).names == ["vllm_naive", "vllm_ngram"]
    assert with_baseline(setup("ngram")).names == ["naive", "ngram"]
    assert with_baseline(setup("ngram", "vllm_naive")).names == ["naive", "ngram", "vllm_naive"]
    assert with_baseline(setup(*VLLM)).names == [*VLLM]
    assert with_baseline(setup("ngram", "naive")).names == ["ngram", "naive"]


def test_batches_hold_what_is_in_flight(setup):
    assert with_places(setup("naive"), 16).engine.max_batch == 16
    assert with_places(setup("naive"), 2).engine.max_batch == 4


async def test_a_request_goes_to_the_engine_of_its_method(setup, tiny_bundle):
    config = setup("naive").engine
    loaded = [load_engine([name], tiny_bundle, config, name) for name in TORCH]
    engines, sampling = Engines(loaded), SamplingParams(max_tokens=12)
    try:
        answers = [
            await answer_to(engines, request_of("a", name, [1, 2, 1, 2], sampling))
            for name in reversed(TORCH)
        ]
    finally:
        for engine in loaded:
            engine.close()
    assert [answer.stats.method for answer in answers] == ["ngram", "naive"]
    assert answers[0].token_ids == answers[1].token_ids


async def test_giving_an_answer_up_frees_the_engine(setup, tiny_bundle):
    engine = load_engine(["naive"], tiny_bundle, setup("naive").engine)
    sampling = SamplingParams(max_tokens=200, ignore_eos=True)
    request = request_of("a", "naive", [1, 2], sampling)
    try:
        chunks = Engines([engine]).generate(request)
        await anext(chunks)
        await chunks.aclose()
        again = await answer_to(engine, SHORT)
        assert engine.load().running == 0
    finally:
        engine.close()
    assert again.stats.mean_batch == 1.0


async def test_engines_are_closed_in_the_end(setup, tiny_bundle):
    with engines_of(setup("naive"), tiny_bundle, "test") as engines:
        await answer_to(engines, SHORT)
    with pytest.raises(RuntimeError, match="shut down"):
        await answer_to(engines, SHORT)
