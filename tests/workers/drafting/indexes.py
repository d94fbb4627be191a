"""Indexes of texts, and what they should find."""

from hypothesis import strategies as st

from workers.drafting.lookup.occurrences import LONGEST, Index

ANCHORS = (8, 4, 2, 1)
texts = st.lists(st.integers(0, 4), min_size=1, max_size=120)


def indexed(text, at_once=1000):
    index = Index(text, ANCHORS)
    while index._indexed < len(text) - 1:
        index.extend(at_once)
    return index


def longest_match(text, end, pattern):
    length = 0
    while (
        length < min(end, len(pattern), LONGEST) and text[end - 1 - length] == pattern[-1 - length]
    ):
        length += 1
    return length
