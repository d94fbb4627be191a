"""Reasoning between think tags, in whatever pieces the text comes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.reasoning import Reasoning, Splitter

TEXTS = {
    "<think>\nHm, 2 < 3.\n\nYes.\n</think>\n\nIt is </think> so.": (
        "Hm, 2 < 3.\n\nYes.",
        "It is </think> so.",
    ),
    "\n<think></think>ok": ("", "ok"),
    "<think>cut </thi": ("cut </thi", ""),
    "<think> \n cut \n": ("cut", ""),
    "<thin": ("", "<thin"),
    " plain <think>no</think>": ("", " plain <think>no</think>"),
    "<think>a</think> \n": ("a", ""),
    "": ("", ""),
}
OPENED = {
    "Hm.\n</think>\nYes": ("Hm.", "Yes"),
    "<think>": ("<think>", ""),
    " a </think": ("a </think", ""),
}


def split(reasoning: Reasoning, pieces: list[str]) -> tuple[str, str]:
    splitter = Splitter(reasoning)
    parts = [*(splitter.push(piece) for piece in pieces), splitter.finish()]
    return "".join(r for r, _ in parts), "".join(c for _, c in parts)


@pytest.mark.parametrize(("opened", "texts"), [(False, TEXTS), (True, OPENED)])
def test_texts_cut_at_every_place(opened: bool, texts: dict[str, tuple[str, str]]) -> None:
    reasoning = Reasoning("<think>", "</think>", opened)
    for text, expected in texts.items():
        for cut in range(len(text) + 1):
            assert split(reasoning, [text[:cut], text[cut:]]) == expected
        assert split(reasoning, list(text)) == expected


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([" ", "\n", "a", "<b>", "</b>", "<", "b>", "</", "/b"])))
def test_pieces_do_not_matter(pieces: list[str]) -> None:
    for opened in (False, True):
        reasoning = Reasoning("<b>", "</b>", opened)
        assert split(reasoning, pieces) == split(reasoning, ["".join(pieces)])
