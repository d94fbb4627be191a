"""The n-gram table against a plain search."""

from hypothesis import given
from hypothesis import strategies as st

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
