"""What a prompt says beforehand, at no cost, of how its answer may be speculated on."""

import math
import re
import string
from itertools import pairwise

READ_CHARACTERS = 4096
"""Of a longer text, only so many are read."""
MOST_TOKENS = 512
"""Longer prompts count as so long: they are mostly conversations, of which profiles have none."""

OPENINGS = ("translate", "write", "fix", "rewrite", "summar", "explain", "what", "how", "why")
"""Words that say what is asked for."""

NAMES = (
    *("repeated", "distinct_words", "code", "braces", "digits", "lines", "question"),
    *OPENINGS,
    "log_tokens",
)
"""Of what `features_of` says, in its order: a table that was fitted on others is refused."""

_CODE = re.compile(r"```|\bdef |\bimport |;\n")


def features_of(text: str, prompt_tokens: float) -> list[float]:
    """How much of a text repeats itself, is code, JSON, digits or lines, whether it asks, how it
    begins, and the logarithm of its prompt's tokens."""
    text = text[:READ_CHARACTERS]
    words = text.split()
    trigrams = [*zip(pairwise(words), words[2:], strict=False)]
    lower = text.lower()
    return [
        1.0 - len(set(trigrams)) / len(trigrams) if trigrams else 0.0,
        len(set(words)) / max(1, len(words)),
        float(bool(_CODE.search(text))),
        text.count("{") / max(1, len(text)),
        sum(map(text.count, string.digits)) / max(1, len(text)),
        text.count("\n") / max(1, len(words)),
        float(text.rstrip().endswith("?")),
        *(float(word in lower) for word in OPENINGS),
        math.log(min(MOST_TOKENS, max(1.0, prompt_tokens))),
    ]
