"""Which lengths of prefixes have hashes."""

from hypothesis import given
from hypothesis import strategies as st

from schemas.prefixes import BLOCK, hashed_lengths, prefix_hashes, prefix_lengths


@given(st.integers(0, 10_000))
def test_a_prompt_shows_all_but_a_part_of_its_tokens(count):
    lengths = prefix_lengths(count)
    longest = [0, *lengths][-1]
    assert hashed_lengths(len(lengths)) == lengths
    assert longest <= count
    assert count - longest < max(BLOCK, count / 4)


def test_long_prompts_have_few_hashes():
    assert len(prefix_lengths(8192)) == len(prefix_hashes(range(8192), "")) == 24
