"""Hashes of prefixes: equal for equal prefixes of one scope, and for nothing else."""

from hypothesis import given
from hypothesis import strategies as st

from schemas.prefixes import BLOCK, held_tokens, prefix_hashes, prefix_lengths, reported_hashes

tokens = st.lists(st.integers(0, 50_000), max_size=600)


@given(tokens, tokens, tokens)
def test_the_longest_shared_prefix_is_found(shared, left, right):
    """At the last length with a hash that both prompts share."""
    left, right = [*shared, *left], [*shared, *right]
    same = 0
    while same < min(len(left), len(right)) and left[same] == right[same]:
        same += 1
    lengths = [0, *(one for one in prefix_lengths(len(right)) if one <= same)]
    report = reported_hashes(b"".join(prefix_hashes(left, "a")))
    assert held_tokens(prefix_hashes(right, "a"), report) == lengths[-1]
    assert held_tokens(prefix_hashes(right, "a"), (), report) == lengths[-1]
    assert held_tokens(prefix_hashes(right, "b"), report) == 0


@given(st.integers(0, 10_000))
def test_a_prompt_shows_all_but_a_part_of_its_tokens(count):
    longest = [0, *prefix_lengths(count)][-1]
    assert longest <= count
    assert count - longest < max(BLOCK, count / 4)


def test_long_prompts_have_few_hashes():
    assert len(prefix_lengths(8192)) == len(prefix_hashes(range(8192), "")) == 24


def test_any_of_several_holders_counts():
    hashes = prefix_hashes(range(300), "")
    assert held_tokens(hashes, set(hashes[:2]), set(hashes[:4])) == prefix_lengths(300)[3]
    assert held_tokens([], set(hashes)) == 0
