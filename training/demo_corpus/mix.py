"""How often the trainer sees a row of each source; rows are written once."""

from __future__ import annotations

from training.demo_corpus.rows import Row

# the longest prefix of a row's source decides
REPEATS = {
    "instruct:": 2.0,
    "instruct:google-research-datasets/nq_open": 1.0,
    "dialogue:": 1.0,
    "generated:": 1.0,
    "python:": 1.0,
}


def repeats(row: Row) -> float:
    """Times per epoch that a packing should take the row; a fraction is a chance."""
    prefixes = [prefix for prefix in REPEATS if row["source"].startswith(prefix)]
    return REPEATS[max(prefixes, key=len)] if prefixes else 1.0
