"""What a method's parts are called and take, seen without building them."""

import pytest

from schemas import MethodSpec
from workers.methods import METHODS
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
