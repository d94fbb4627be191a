"""Which methods a bundle has the parts for."""

import json
import shutil

import pytest

from schemas import AppConfig, MethodDeployment
from workers.bundle import load_bundle
from workers.methods import METHODS, get_method
from workers.portfolio import part_of, with_portfolio


@pytest.fixture
def without_drafts(tiny_bundle, tmp_path):
    """The tiny family without a draft model and without Medusa's heads."""
    folder = tmp_path / "bundle"
    shutil.copytree(tiny_bundle.path, folder)
    shutil.rmtree(folder / "draft")
    body = json.loads((folder / "bundle.json").read_text())
    del body["parts"]["medusa"]
    (folder / "bundle.json").write_text(json.dumps(body))
    return load_bundle(folder)


def test_a_method_names_the_part_that_it_drafts_with():
    assert part_of(get_method("naive")) is None
    assert part_of(get_method("ngram")) is None
    assert part_of(get_method("draft_verify")) == "draft"
    assert part_of(get_method("eagle2")) == "eagle"
    assert part_of(get_method("vllm_eagle3")) == "eagle3"
    other = get_method("eagle3").model_copy(update={"settings": {"drafter": {"part": "e3"}}})
    assert part_of(other) == "e3"


def test_every_part_that_a_method_needs_is_found_before_it_is_loaded(tiny_bundle, tmp_path):
    """No drafter of ours reads a part that `part_of` does not know of."""
    from decoding import SMALL

    from schemas import EngineConfig
    from workers.bundle import BundleError
    from workers.loader import load_engine

    bare = tmp_path / "bare"
    for part in ("target", "tokenizer"):
        shutil.copytree(tiny_bundle.part(part), bare / part)
    body = {"name": "bare", "parts": {"target": "target", "tokenizer": "tokenizer"}}
    (bare / "bundle.json").write_text(json.dumps(body))
    config = EngineConfig.model_validate(SMALL)
    for spec in METHODS.values():
        if spec.engine == "torch" and (part := part_of(spec)) is not None:
            with pytest.raises(BundleError, match=f"has no part '{part}'"):
                load_engine([spec], load_bundle(bare), config)
    plain = [s for s in METHODS.values() if s.engine == "torch" and part_of(s) is None]
    load_engine(plain, load_bundle(bare), config).close()


def test_default_methods_are_those_whose_parts_are_there(tiny_bundle, without_drafts):
    assert with_portfolio(AppConfig(), tiny_bundle).methods == AppConfig().methods
    kept = with_portfolio(AppConfig(), without_drafts).methods
    assert [method.name for method in kept] == ["naive", "ngram", "eagle2", "eagle3"]


def test_methods_that_are_named_stay(without_drafts):
    named = AppConfig(methods=(MethodDeployment(name="draft_verify"),))
    assert with_portfolio(named, without_drafts) == named
