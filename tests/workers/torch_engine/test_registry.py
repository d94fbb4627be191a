"""What a method's parts are called and take, and combinations of them that are refused."""

import pytest

from schemas import MethodSpec
from workers.methods import METHODS, get_method
from workers.torch_engine.registry import check_parts

SPEC = {"name": "own", "lossless": True, "source": "a test", "drafter": "ngram"}


@pytest.mark.parametrize("name", [spec.name for spec in METHODS.values() if spec.engine == "torch"])
def test_the_methods_there_are_have_their_parts(name):
    check_parts(METHODS[name])


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"drafter": "ngrams"}, "method own: unknown drafter 'ngrams': this engine has"),
        ({"tree": "oak"}, "method own: unknown tree 'oak'"),
        ({"stop": "never"}, "method own: unknown stop 'never'"),
        ({"verifier": "kind"}, "method own: unknown verifier 'kind'"),
        ({"settings": {"drafter": {"max": 3}}}, "has no setting 'max': its settings are max_n"),
        ({"settings": {"stop": {"gamma": "many"}}}, "stop 'fixed': gamma is 'many'"),
        ({"settings": {"stop": {"gamma": True}}}, "stop 'fixed': gamma is True"),
        ({"settings": {"stop": {"gamma": float("nan")}}}, "stop 'fixed': gamma is nan"),
        ({"settings": {"drafter": {"match": 3}}}, "drafter 'ngram': match is 3"),
    ],
)
def test_what_the_engine_does_not_have_is_named(parts, said):
    with pytest.raises(ValueError, match=said):
        check_parts(MethodSpec(**(SPEC | parts)))


def changed(method: str, **fields: object) -> MethodSpec:
    return get_method(method).model_copy(update=fields)


def verifying(**settings: object) -> MethodSpec:
    return changed("fuzzy", settings={"verifier": settings})


NOBODY = {"drafter": {"learned": "", "look_ups": False}}
FORKS = {"tree": "static", "settings": {"tree": {"widths": (2, 2)}}}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (changed("ngram", settings={"drafter": {"min_n": 5}}), "1 <= min_n <= max_n"),
        (changed("ngram", settings={"drafter": {"match": "best"}}), "'recent' or 'earliest'"),
        (changed("ngram", settings={"stop": {"gamma": 0}}), "gamma must be at least 1"),
        (changed("suffix", settings={"drafter": {"least": 0.0}}), "least must be between 0 and 1"),
        (changed("suffix", settings={"drafter": {"past_bytes": -1}}), "must not be negative"),
        (changed("adaptive", settings=NOBODY), "no drafter is left: name methods in learned"),
        (verifying(divergence="js", threshold=0.7), "decides nothing"),
        (verifying(threshold=-0.1), "decides nothing"),
        (verifying(divergence="cosine"), "divergence is one of js, kl_qp, kl_pq, tv"),
        (changed("fuzzy", drafter="ngram"), "'fuzzy' needs a drafter with a distribution"),
        (changed("draft_verify", verifier="one_hot"), "'one_hot' takes chosen tokens only"),
        (
            changed("draft_verify", **FORKS),
            "method 'draft_verify': .*'rejection' takes chains only",
        ),
        (changed("fuzzy", **FORKS), "method 'fuzzy': verifier 'fuzzy' takes chains only"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_loaded(load_engine, byte_bundle, spec, said):
    with pytest.raises(ValueError, match=said):
        load_engine([spec], byte_bundle)
