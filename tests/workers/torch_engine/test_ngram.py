"""The n-gram table against a plain search."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import MethodSpec
from workers.methods import get_method
from workers.torch_engine.drafters.ngram import NgramTable

few_tokens = st.lists(st.integers(0, 3), min_size=1, max_size=60)


def search(tokens: list[int], sizes: range, gamma: int, recent: bool) -> int | None:
    """The definition, word for word."""
    for n in sizes:
        suffix = tokens[-n:]
        ends = [e for e in range(n, len(tokens)) if tokens[e - n : e] == suffix]
        if len(suffix) < n or not ends:
            continue
        roomy = [e for e in ends if e + gamma <= len(tokens)]
        return roomy[-1] if recent and roomy else ends[0]
    return None


@given(few_tokens, st.integers(1, 3), st.integers(0, 2), st.integers(1, 9), st.booleans())
def test_finds_what_a_search_finds_after_every_step(tokens, min_n, more, gamma, recent):
    table = NgramTable(min_n, min_n + more)
    sizes = range(min_n + more, min_n - 1, -1)
    for length in range(1, len(tokens) + 1, 2):
        seen = tokens[:length]
        table.extend(seen)
        assert table.find(seen, gamma, recent=recent) == search(seen, sizes, gamma, recent)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"drafter": {"min_n": 5}}, "1 <= min_n <= max_n"),
        ({"drafter": {"match": "best"}}, "match is 'recent' or 'earliest'"),
        ({"drafter": {"length": 5}}, "no setting 'length': its settings are max_n, min_n, match"),
        ({"stop": {"gamma": 0}}, "gamma must be at least 1"),
    ],
)
def test_bad_settings_are_named(load_engine, byte_bundle, settings, said):
    spec = MethodSpec.model_validate(get_method("ngram").model_dump() | {"settings": settings})
    with pytest.raises(ValueError, match=said):
        load_engine([spec], byte_bundle)
