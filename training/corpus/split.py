"""The split by source text: rows that share a text are kept on one side.

Rare word 8-grams are those that at most `RARE` rows contain; commoner ones are the wording of a
task ("correct the spelling mistakes in this text keep everything else") and say nothing about
the text underneath. Two rows belong together when they share at least `SAME` of the rare 8-grams
of the one that has fewer: a program and its renamed copy share nearly all, while a single shared
phrase would chain thousands of unrelated rows into one group.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import combinations

from training.corpus.rows import Row, row_text, stable_fraction

SHINGLE = 8
RARE = 12
SAME = 0.3
_WORD = re.compile(r"\w+")


def shingles(text: str) -> set[int]:
    """Return hashes of a text's word 8-grams; a shorter text is one. Valid in this process only."""
    words = _WORD.findall(text.lower())
    if len(words) < SHINGLE:
        return {hash(tuple(words))}
    return {hash(tuple(words[i : i + SHINGLE])) for i in range(len(words) - SHINGLE + 1)}


class _Forest:
    def __init__(self, size: int) -> None:
        self._parent = list(range(size))

    def find(self, item: int) -> int:
        while self._parent[item] != item:
            self._parent[item] = self._parent[self._parent[item]]
            item = self._parent[item]
        return item

    def join(self, first: int, second: int) -> None:
        first, second = self.find(first), self.find(second)
        if first != second:
            self._parent[max(first, second)] = min(first, second)


def group_by_text(texts: Sequence[str], rare: int = RARE, same: float = SAME) -> list[int]:
    """Return one group number per text: the index of the first text of its group."""
    holders: dict[int, list[int]] = defaultdict(list)
    for index, text in enumerate(texts):
        for shingle in shingles(text):
            found = holders[shingle]
            if len(found) <= rare:
                found.append(index)
    sizes: Counter[int] = Counter()
    shared: Counter[tuple[int, int]] = Counter()
    for found in holders.values():
        if len(found) <= rare:
            sizes.update(found)
            shared.update(combinations(found, 2))
    forest = _Forest(len(texts))
    for (first, second), count in shared.items():
        if count >= same * min(sizes[first], sizes[second]):
            forest.join(first, second)
    return [forest.find(index) for index in range(len(texts))]


def split_rows(rows: Sequence[Row], seed: int, share: float) -> list[bool]:
    """Return for each row whether it is held. A group is held by the hash of its first row's id."""
    groups = group_by_text([row_text(row) for row in rows])
    keys = {group: rows[group]["id"] for group in set(groups)}
    return [stable_fraction(seed, keys[group]) < share for group in groups]


def without_near_copies(held: Sequence[Row], train: Sequence[Row]) -> list[Row]:
    """Return the held rows that no train row gives away.

    A held row is left out if one train row has a share of `SAME` of its rare 8-grams, or if its
    last answer has at least `SHINGLE` words and is an answer of a train row.
    """
    own = [shingles(row_text(row)) for row in held]
    wanted = set().union(*own)
    holders: dict[int, list[int]] = defaultdict(list)
    answers: set[str] = set()
    for index, row in enumerate(train):
        answers.update(m["content"] for m in row["messages"] if m["role"] == "assistant")
        for shingle in shingles(row_text(row)) & wanted:
            holders[shingle].append(index)
    kept = []
    for row, mine in zip(held, own, strict=True):
        answer = row["messages"][-1]["content"]
        if answer in answers and len(_WORD.findall(answer)) >= SHINGLE:
            continue
        rare = [shingle for shingle in mine if len(holders.get(shingle, ())) <= RARE]
        shared = Counter(index for shingle in rare for index in holders.get(shingle, ()))
        if not shared or max(shared.values()) < SAME * len(rare):
            kept.append(row)
    return kept
