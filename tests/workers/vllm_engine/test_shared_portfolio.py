"""Several methods in one vLLM engine, without vLLM: its arguments, and which rows draft what."""

import json

import pytest

from schemas import MethodSpec
from schemas.config import DatastoreConfig
from workers.bundle import Bundle
from workers.drafting.lookup.datastore import write_corpus
from workers.methods import get_method
from workers.vllm_engine import shared
from workers.vllm_engine.drafting.portfolio import KEY, PORTFOLIO, Portfolio


def specs(*names: str) -> list[MethodSpec]:
    return [get_method(name) for name in names]


def changed(name: str, **fields) -> MethodSpec:
    return get_method(name).model_copy(update={"name": f"{name}_changed", **fields})


def portfolio(bundle: Bundle, *names: str) -> Portfolio:
    """As a worker process reads it, from JSON."""
    text = json.dumps(shared.additional_config(specs(*names), bundle))
    return PORTFOLIO.validate_python(json.loads(text)[KEY])


@pytest.mark.parametrize(
    ("names", "host"),
    [
        (("vllm_naive", "vllm_ngram", "vllm_draft", "vllm_eagle", "vllm_eagle3"), "eagle3"),
        (("vllm_draft", "vllm_eagle"), "eagle"),
        (("vllm_draft", "vllm_mtp"), "mtp"),
        (("vllm_suffix", "vllm_draft", "vllm_medusa"), "draft_model"),
    ],
)
def test_vllm_is_configured_with_the_drafter_that_needs_the_most_of_it(bundle, names, host):
    options = shared.speculative_config(specs(*names), bundle)
    assert options["method"] == host
    assert portfolio(bundle, *names).host == host
    if host != "mtp":
        assert options["model"] == str(bundle.part({"draft_model": "draft"}.get(host, host)))


def test_vllm_reserves_the_longest_draft_and_every_method_keeps_its_own(bundle):
    names = ("vllm_naive", "vllm_eagle3", "vllm_ngram")
    assert shared.speculative_config(specs(*names), bundle)["num_speculative_tokens"] == 8
    methods = portfolio(bundle, *names).methods
    assert {name: m.tokens for name, m in methods.items()} == {"vllm_eagle3": 4, "vllm_ngram": 8}


def test_drafters_without_kv_are_hosted_by_a_class_of_ours(bundle):
    options = shared.speculative_config(specs("vllm_naive", "vllm_ngram", "vllm_medusa"), bundle)
    assert options["method"] == "custom_class"
    assert options["rejection_sample_method"] == "standard"


def test_the_adaptive_method_is_told_of_a_datastore_and_a_bad_one_is_refused(bundle, tmp_path):
    config = DatastoreConfig(folder=tmp_path)
    with pytest.raises(ValueError, match=r"engine\.datastore\.folder: .*datastore\.json"):
        shared.additional_config(specs("vllm_adaptive"), bundle, config)
    write_corpus(tmp_path, [[1, 2, 3]], bundle.tokenizer_hash)
    text = json.dumps(shared.additional_config(specs("vllm_adaptive"), bundle, config))
    options = PORTFOLIO.validate_python(json.loads(text)[KEY]).adaptive
    assert options.stored == (config, bundle.tokenizer_hash)
    assert shared.additional_config(specs("vllm_ngram"), bundle, config)[KEY]["adaptive"] is None


@pytest.mark.parametrize(
    ("others", "why"),
    [
        ([changed("vllm_ngram", settings={"drafter": {"max_n": 3, "min_n": 2}})], "ngram drafter"),
        ([changed("vllm_suffix", verifier="traversal")], "rejection_sample_method"),
        (specs("vllm_mtp", "vllm_eagle3"), "hidden states"),
    ],
)
def test_methods_that_cannot_share_an_engine_are_named(bundle, others, why):
    together = [*specs("vllm_ngram"), *others]
    with pytest.raises(ValueError, match=rf"vllm_.* and vllm_.* cannot share one engine.*{why}"):
        shared.speculative_config(together, bundle)


def test_only_methods_with_kv_of_their_own_keep_their_prompts_apart():
    salts = {
        name: shared.cache_salt(get_method(name))
        for name in ("vllm_naive", "vllm_ngram", "vllm_medusa", "vllm_eagle3", "vllm_draft")
    }
    assert salts["vllm_naive"] is salts["vllm_ngram"] is salts["vllm_medusa"] is None
    assert None is not salts["vllm_eagle3"] != salts["vllm_draft"] is not None


def test_the_adaptive_method_brings_the_drafters_that_the_bundle_has(bundle, monkeypatch):
    """Their acceptance begins as the bundle's routing table says."""
    monkeypatch.setattr(shared, "routed_shares", lambda _table, _, tokens: (0.5, tokens))
    found = portfolio(bundle, "vllm_adaptive", "vllm_ngram")
    assert found.adaptive.learned[0].usual == (0.5, 4.0)
    assert set(found.drafters) == {"ngram", "medusa", "eagle3"}
    assert found.host == "eagle3"
    assert found.methods["vllm_adaptive"].drafter == "adaptive"
    assert [(one.drafter, one.tokens) for one in found.adaptive.learned] == [
        ("medusa", 4),
        ("eagle3", 4),
    ]
    assert portfolio(bundle, "vllm_ngram", "vllm_naive").adaptive is None


def test_look_ups_alone_need_no_drafter_of_vllms(bundle):
    spec = changed("vllm_adaptive", settings={"drafter": {"learned": ""}, "stop": {"gamma": 6}})
    options = shared.speculative_config([spec], bundle)
    assert options["method"] == "custom_class"
    assert options["num_speculative_tokens"] == 6
    assert shared.shares([spec])
    assert not shared.shares(specs("vllm_ngram"))
    assert not shared.shares([*specs("vllm_naive"), changed("vllm_naive")])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learned": "eagle3"}, "learned: eagle3 is not a method of vLLM that drafts"),
        ({"learned": "vllm_naive"}, "learned: vllm_naive is not a method of vLLM that drafts"),
        ({"learned": "", "lest": 0.1}, "lest"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(bundle, settings, message):
    spec = changed("vllm_adaptive", settings={"drafter": settings, "stop": {"gamma": 6}})
    with pytest.raises(ValueError, match=message):
        shared.speculative_config([spec], bundle)


def test_one_method_of_an_engine_chooses_drafters(bundle):
    both = [*specs("vllm_adaptive"), changed("vllm_adaptive")]
    with pytest.raises(ValueError, match="cannot share one engine"):
        shared.speculative_config(both, bundle)
