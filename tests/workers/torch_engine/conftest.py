"""Tiny bundles, and engines over them that are closed when a test ends."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from conftest_bundle import byte_tokenizer, make_bundle
from decoding import SMALL, reading, without_reading
from rig import Rig

from schemas import EngineConfig, MethodSpec
from workers.bundle import Bundle
from workers.drafting import controller
from workers.drafting.step_costs import Finished, Floats, StepCosts
from workers.torch_engine.engine import TorchEngine

Loader = Callable[..., TorchEngine]


@pytest.fixture(scope="session")
def byte_bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Byte tokens and two KV heads: a small vocabulary repeats itself, so n-grams match."""
    folder = tmp_path_factory.mktemp("bundle") / "bytes"
    return make_bundle(folder, tokenizer=byte_tokenizer(), kv_heads=2)


def small_bundle(factory: pytest.TempPathFactory, vocab: int, **options: Any) -> Bundle:
    """Make a bundle of so few tokens that random drafters are often right."""
    folder = factory.mktemp("bundle") / f"vocab-{vocab}"
    return make_bundle(folder, tokenizer=byte_tokenizer(), vocab=vocab, **options)


@pytest.fixture(scope="session")
def five(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Five tokens, few enough to enumerate all answers, and a draft model that is often wrong."""
    return small_bundle(tmp_path_factory, 5, noise=0.6, seed=5)


@pytest.fixture(scope="session")
def six(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Six tokens and a draft model that is often right."""
    return small_bundle(tmp_path_factory, 6, kv_heads=2)


@pytest.fixture(scope="session")
def seven(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Seven tokens and a draft model whose choice of every rank is accepted now and then."""
    return small_bundle(tmp_path_factory, 7, kv_heads=2, noise=0.3)


@pytest.fixture(scope="session")
def two_dozen(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Twenty-four tokens, few enough to write the formulas of heads out."""
    return small_bundle(tmp_path_factory, 24, kv_heads=2)


@pytest.fixture
def load_engine() -> Iterator[Loader]:
    """load_engine(methods, bundle, **settings) -> TorchEngine in float32 with a small pool."""
    from workers.loader import load_engine as load

    engines: list[TorchEngine] = []

    def loader(methods: list[MethodSpec | str], bundle: Bundle, **settings: object) -> TorchEngine:
        own, read = without_reading(settings)
        with reading(**read):
            engine = load(methods, bundle, EngineConfig.model_validate(SMALL | own))
        assert isinstance(engine, TorchEngine)
        engines.append(engine)
        return engine

    yield loader
    for engine in engines:
        engine.close()


@pytest.fixture
def make_rig() -> Iterator[Callable[..., Rig]]:
    """make_rig(bundle, methods, **settings) -> Rig."""
    rigs: list[Rig] = []

    def make(bundle: Bundle, methods: list[str], **settings: object) -> Rig:
        rigs.append(Rig(bundle, methods, **settings))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()


@pytest.fixture
def cost(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Floats], Floats]], None]:
    """cost(seconds): steps cost so much by their rows, drafting nothing, and no arm is tried for
    the sake of its seconds."""

    def fixed(seconds: Callable[[Floats], Floats]) -> None:
        def table(_: StepCosts, rows: int) -> Floats:
            return np.asarray(seconds(np.arange(rows + 1.0)), float)

        def finished(self: controller.Controller, _: Finished) -> None:
            self._step = None

        monkeypatch.setattr(StepCosts, "table", table)
        monkeypatch.setattr(controller.Controller, "finished", finished)
        monkeypatch.setattr(controller.Controller, "_level_seconds", lambda *_: 0.0)
        monkeypatch.setattr(controller, "EVERY", 10**6)

    return fixed
