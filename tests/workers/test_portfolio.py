"""What a configuration leaves open: the bundle, and the methods that it has the parts for."""

import logging
import shutil
from dataclasses import replace

import pytest
from conftest_bundle import with_parts
from decoding import SMALL

from schemas import AppConfig, EngineConfig, FeedbackConfig, MethodDeployment
from workers.bundle import BundleError
from workers.loader import load_engine
from workers.methods import METHODS, get_method
from workers.portfolio import (
    SMALL_DEMO,
    decodable,
    exchanged_parts,
    method_of,
    part_of,
    parts_of,
    served_bundle,
    with_bundle,
    with_portfolio,
)


@pytest.fixture
def without_drafts(tiny_bundle, tmp_path):
    """The tiny family without a draft model and without Medusa's heads."""
    folder = tmp_path / "bundle"
    shutil.copytree(tiny_bundle.path, folder)
    shutil.rmtree(folder / "draft")
    return with_parts(folder, "medusa")


def test_a_method_names_the_part_that_it_drafts_with():
    assert part_of(get_method("naive")) is None
    assert part_of(get_method("ngram")) is None
    assert part_of(get_method("draft_verify")) == "draft"
    assert part_of(get_method("eagle2")) == "eagle"
    assert part_of(get_method("vllm_eagle3")) == "eagle3"
    other = get_method("eagle3").model_copy(update={"settings": {"drafter": {"part": "e3"}}})
    assert part_of(other) == "e3"


def test_a_method_that_chooses_drafts_with_the_parts_of_all_that_are_there(
    tiny_bundle, without_drafts
):
    adaptive = get_method("adaptive")
    assert parts_of(adaptive, tiny_bundle) == ("medusa", "eagle3")
    assert parts_of(adaptive, without_drafts) == ("eagle3",)
    assert parts_of(get_method("eagle2"), tiny_bundle) == ("eagle",)
    assert parts_of(get_method("ngram"), tiny_bundle) == ()


def test_heads_are_exchanged_in_our_engine_and_in_shared_ones_of_vllm(tiny_bundle, without_drafts):
    def parts(*methods, bundle=tiny_bundle):
        return exchanged_parts([get_method(name) for name in methods], bundle)

    assert parts("eagle2", "ngram") == {"eagle2": ("eagle",), "ngram": ()}
    assert parts("vllm_eagle3") == {}
    assert parts("vllm_naive", "vllm_eagle3") == {"vllm_naive": (), "vllm_eagle3": ("eagle3",)}
    assert parts("vllm_adaptive") == {"vllm_adaptive": ("eagle3", "medusa")}
    assert parts("vllm_adaptive", bundle=without_drafts) == {"vllm_adaptive": ("eagle3",)}


def test_a_service_that_trains_grows_the_head_that_its_bundle_lacks(tiny_bundle, tmp_path):
    folder = shutil.copytree(tiny_bundle.path, tmp_path / "bundle")
    config = AppConfig(bundle=folder, feedback=FeedbackConfig(drafter_training=True))
    assert not served_bundle(config).growing
    with_parts(folder, "eagle", "eagle3")
    assert not served_bundle(AppConfig(bundle=folder)).growing
    bundle = served_bundle(config)
    assert parts_of(get_method("adaptive"), bundle) == ("medusa", "eagle3")
    names = ("eagle3", "adaptive_length", "eagle2", "vllm_eagle3")
    assert [decodable(get_method(name), bundle) for name in names] == [True, True, False, False]


def test_a_length_is_decided_for_the_one_drafter_that_is_named():
    def part(**drafter):
        settings = {"drafter": {"look_ups": False, **drafter}}
        return part_of(get_method("adaptive").model_copy(update={"settings": settings}))

    assert part(learned="eagle2") == "eagle"
    assert part(learned="medusa,eagle3") is None
    assert part(learned="") is part() is None
    with pytest.raises(ValueError, match="unknown method 'eagle9': choose from"):
        part(learned="eagle9")


def test_every_part_that_a_method_needs_is_found_before_it_is_loaded(tiny_bundle, tmp_path):
    """No drafter of ours reads a part that `part_of` does not know of."""
    folder = shutil.copytree(tiny_bundle.path, tmp_path / "bare")
    bare = with_parts(folder, *tiny_bundle.parts.keys() - {"target", "tokenizer"})
    config = EngineConfig.model_validate(SMALL)
    for spec in METHODS.values():
        if spec.engine == "torch" and (part := part_of(spec)) is not None:
            with pytest.raises(BundleError, match=f"has no part '{part}'"):
                load_engine([spec], bare, config)
    plain = [s for s in METHODS.values() if s.engine == "torch" and part_of(s) is None]
    load_engine(plain, bare, config).close()


def test_default_methods_are_those_whose_parts_are_there(tiny_bundle, without_drafts):
    assert with_portfolio(AppConfig(), tiny_bundle).methods == AppConfig().methods
    kept = with_portfolio(AppConfig(), without_drafts).methods
    assert [method.name for method in kept] == ["naive", "ngram", "eagle2", "eagle3"]


def test_a_bundles_own_portfolio_comes_before_the_default_one(tiny_bundle, without_drafts):
    own = ("eagle3", "medusa", "naive")
    kept = with_portfolio(AppConfig(), replace(tiny_bundle, portfolio=own)).methods
    assert tuple(method.name for method in kept) == own
    kept = with_portfolio(AppConfig(), replace(without_drafts, portfolio=own)).methods
    assert [method.name for method in kept] == ["eagle3", "naive"]
    asked = AppConfig(methods=(MethodDeployment(name="ngram"),))
    kept = with_portfolio(asked, replace(tiny_bundle, portfolio=own)).methods
    assert [method.name for method in kept] == ["ngram"]


def test_a_bundles_weights_go_with_its_portfolio(tiny_bundle):
    weighted = replace(tiny_bundle, portfolio=("naive", "ngram"), weights={"ngram": 0, "eagle": 0})
    assert with_portfolio(AppConfig(), weighted).router.weights == {"ngram": 0}
    own = AppConfig(router={"weights": {"naive": 2.0}})
    assert with_portfolio(own, weighted).router.weights == {"naive": 2.0}
    named = AppConfig(methods=[{"name": "ngram"}])
    assert with_portfolio(named, weighted).router.weights == {}


def test_a_bundles_own_tuning_stands_for_methods_of_that_name(tiny_bundle):
    tuned = get_method("eagle2").model_copy(update={"settings": {"stop": {"gamma": 7}}})
    bundle = replace(tiny_bundle, methods={"eagle2": tuned})
    assert method_of("eagle2", bundle) == tuned
    assert method_of("ngram", bundle) == get_method("ngram")
    specs = {method.name: method.spec for method in with_portfolio(AppConfig(), bundle).methods}
    assert specs == dict.fromkeys(specs) | {"eagle2": tuned}
    here = tuned.model_copy(update={"settings": {"stop": {"gamma": 1}}})
    named = AppConfig(methods=[{"name": "eagle2"}, {"name": "naive"}])
    assert [m.spec for m in with_portfolio(named, bundle).methods] == [tuned, None]
    named = AppConfig(methods=[{"name": "eagle2", "spec": here}])
    assert with_portfolio(named, bundle) == named


@pytest.fixture
def checkout(tiny_bundle, tmp_path, monkeypatch):
    """A working directory whose default bundle is the tiny one, imported or not."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / AppConfig().bundle
    shutil.copytree(tiny_bundle.path, folder)
    return folder


def test_the_default_bundle_is_taken_where_its_target_is_there(checkout, caplog):
    assert with_bundle(AppConfig()) == AppConfig()
    assert not caplog.records
    shutil.rmtree(checkout / "target")
    with caplog.at_level(logging.WARNING):
        assert with_bundle(AppConfig()).bundle == SMALL_DEMO
    assert "specadapt bundle import bundles/smollm2" in caplog.text
    assert "small demo" in caplog.text


def test_a_bundle_that_is_named_stays(checkout):
    shutil.rmtree(checkout / "target")
    named = AppConfig(bundle=AppConfig().bundle)
    assert with_bundle(named) == named
