"""Which settings are measured of which methods."""

from dataclasses import replace

import pytest

from ops.bench.quality.dials import DIALS, lossy_methods, parse_dials, variants_of
from ops.harness.boundary import InputError
from workers.methods import METHODS, get_method

TYPICAL, FUZZY = get_method("medusa_typical"), get_method("fuzzy")


def test_every_lossy_verifier_there_is_has_a_dial():
    assert {spec.verifier for spec in METHODS.values() if not spec.lossless} <= DIALS.keys()


def test_a_dial_stands_beside_plain_decoding_and_lossless_verification():
    plain, exact, *turned = variants_of([FUZZY], {"threshold": (0.1, 0.3)})
    assert plain.spec == get_method("naive")
    assert (exact.spec.verifier, exact.spec.lossless, exact.method) == ("rejection", True, "fuzzy")
    assert (exact.spec.drafter, exact.spec.settings) == ("draft_model", {"stop": {"gamma": 4}})
    assert [(v.dial, v.value, v.spec.name) for v in turned] == [
        ("threshold", 0.1, "fuzzy_threshold_0_1"),
        ("threshold", 0.3, "fuzzy_threshold_0_3"),
    ]
    assert [v.spec.settings["verifier"] for v in turned] == [
        {"divergence": "js", "threshold": 0.1},
        {"divergence": "js", "threshold": 0.3},
    ]
    assert not any(v.spec.lossless for v in turned)


def test_drafts_keep_their_target_under_the_rule_that_is_theirs():
    sampled = FUZZY.model_copy(
        update={"tree": "static", "settings": {"tree": {"widths": (2, 1), "sample": True}}}
    )
    rules = [variants_of([spec], {})[1].spec.verifier for spec in (TYPICAL, FUZZY, sampled)]
    assert rules == ["one_hot", "rejection", "multi_step"]


def test_named_values_replace_the_built_in_ones_of_their_verifier_alone():
    found = variants_of([TYPICAL, FUZZY], parse_dials(["delta=0.1,0.3"]))
    dials = [(v.method, v.dial) for v in found if v.dial]
    assert dials == [("medusa_typical", "delta")] * 2 + [("fuzzy", "threshold")] * len(
        DIALS["fuzzy"]["threshold"]
    )


def test_lossless_methods_are_measured_as_they_are():
    specs = [get_method("naive"), get_method("ngram"), TYPICAL]
    names = [v.spec.name for v in variants_of(specs, {"epsilon": (0.5,)})]
    assert names == ["naive", "ngram", "medusa_typical_lossless", "medusa_typical_epsilon_0_5"]


def test_typical_acceptance_has_nothing_to_show_at_temperature_0():
    for variant in variants_of([TYPICAL, FUZZY], {}):
        assert variant.differs_at(0.8)
        assert variant.differs_at(0.0) == (variant.spec.verifier != "typical")


@pytest.mark.parametrize(
    "text",
    ["gamma=3", "epsilon", "epsilon=", "epsilon=x", "epsilon=0.1,0.10", "epsilon=nan"],
)
def test_a_dial_that_is_none_is_refused(text):
    with pytest.raises(InputError, match="--dial"):
        parse_dials([text])


def test_what_cannot_be_turned_is_refused():
    with pytest.raises(InputError, match="none is lossy"):
        variants_of([get_method("ngram")], {})
    with pytest.raises(InputError, match="no method here has threshold"):
        variants_of([TYPICAL], {"threshold": (0.1,)})


def test_lossy_methods_are_those_that_the_bundle_can_draft_for(tiny_bundle):
    assert all(not spec.lossless for spec in lossy_methods(tiny_bundle))
    bare = replace(tiny_bundle, parts={})
    with pytest.raises(InputError, match="no part"):
        lossy_methods(bare)
