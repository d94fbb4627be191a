"""Build a corpus: read conversations, split them by source text, and write both sides."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from training.corpus.rows import CorpusError, Row, conversations, row_text, write_rows
from training.corpus.split import split_rows, without_near_copies

HELD_SHARE = 0.04

Counts = dict[str, dict[str, dict[str, int]]]


def build_corpus(files: Sequence[Path], out: Path, seed: int = 0) -> dict[str, object]:
    """Write `out`/train.jsonl, held.jsonl and stats.json, and return the stats.

    Deterministic for the same arguments and data. About 4% of the groups of rows that share text
    are held out (`split.py` defines a group), less those that a train row gives away. Raises
    ValueError for input that cannot be used and for files without an answer.
    """
    rows = [row for file in files for row in conversations(file)]
    if not rows:
        raise CorpusError(f"{', '.join(map(str, files))}: no line has a prompt and an answer")
    _check_ids(rows)
    sides: tuple[list[Row], list[Row]] = ([], [])
    for row, held in zip(rows, split_rows(rows, seed, HELD_SHARE), strict=True):
        sides[held].append(row)
    for side in sides:
        random.Random(seed).shuffle(side)
    train, held_rows = sides[0], without_near_copies(sides[1], sides[0])
    out.mkdir(parents=True, exist_ok=True)
    stats: dict[str, object] = {"seed": seed}
    for name, side in (("train", train), ("held", held_rows)):
        write_rows(out / f"{name}.jsonl", side)
        stats[name] = _stats(side)
    (out / "stats.json").write_text(json.dumps(stats, indent=1) + "\n", encoding="utf-8")
    return stats


def _check_ids(rows: Iterable[Row]) -> None:
    [(most, times)] = Counter(row["id"] for row in rows).most_common(1)
    if times > 1:
        raise CorpusError(f"id {most!r} is given to {times} rows; ids must be unique")


def _stats(rows: Iterable[Row]) -> Counts:
    counts: dict[str, dict[str, Counter[str]]] = {
        "domain": defaultdict(Counter),
        "source": defaultdict(Counter),
    }
    for row in rows:
        chars = len(row_text(row))
        for key, name in (("domain", row["domain"]), ("source", row["source"])):
            counts[key][name].update(rows=1, characters=chars)
    return {key: {name: dict(c) for name, c in sorted(d.items())} for key, d in counts.items()}
