"""The n-gram table against a plain search."""

from hypothesis import given
from hypothesis import strategies as st

from workers.drafting.lookup.occurrences import Index
from workers.torch_engine.drafters.ngram import place_of

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
    sizes, seen = range(min_n + more, min_n - 1, -1), list[int]()
    index = Index(seen, sizes)
    while len(seen) < len(tokens):
        seen += tokens[len(seen) : len(seen) + 2]
        index.extend(1000)
        assert place_of(index, seen, gamma, recent=recent) == search(seen, sizes, gamma, recent)
