"""Builds the corpus: collects every source, splits it and writes train, held and stats."""

from __future__ import annotations

import json
import logging
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from training.demo_corpus import (
    arithmetic,
    creative,
    editing,
    extraction,
    facts,
    programs,
    reasoning,
    structured,
    translation,
)
from training.demo_corpus.lexicon import SYSTEM_PROMPTS
from training.demo_corpus.mix import REPEATS
from training.demo_corpus.python_source import python_samples
from training.demo_corpus.rows import (
    Generator,
    Message,
    Row,
    Sample,
    row_text,
    single_turn,
    stable_fraction,
    write_rows,
)
from training.demo_corpus.shared_data import dialogue_rows, instruct_rows
from training.demo_corpus.split import split_corpus_rows, without_near_copies

HELD_SHARE = 0.04
GYM_SHARE = 0.09
SYSTEM_SHARE = 0.05
FOLLOW_UP_SHARE = 0.06
# share of the generated rows per topic
_TOPICS: tuple[tuple[str, tuple[tuple[Generator, float], ...], float], ...] = (
    ("arithmetic", arithmetic.GENERATORS, 0.17),
    ("programs", programs.GENERATORS, 0.11),
    ("editing", editing.GENERATORS, 0.19),
    ("creative", creative.GENERATORS, 0.12),
    ("structured", structured.GENERATORS, 0.11),
    ("extraction", extraction.GENERATORS, 0.09),
    ("translation", translation.GENERATORS, 0.08),
    ("facts", facts.GENERATORS, 0.06),
    ("reasoning", reasoning.GENERATORS, 0.07),
)
# The samples that the demo family was trained on, and that the lists of profiled prompts name, were
# drawn under this name: the code may move, the samples stay.
_DRAWN_AS = "workers.training.corpus"
Progress = Callable[[str], None]
_log = logging.getLogger(__name__)


def _distinct(samples: Iterator[Sample], count: int, seen: set[str]) -> Iterator[Sample]:
    """Up to `count` samples with new prompts; stops early when a task runs out of them."""
    misses = 0
    for sample in samples:
        if sample.prompt in seen:
            misses += 1
            if misses > 20 + count:
                return
            continue
        seen.add(sample.prompt)
        yield sample
        count -= 1
        if count <= 0:
            return


def _endless(generator: Generator, rng: random.Random) -> Iterator[Sample]:
    while True:
        yield generator(rng)


def generated_samples(count: int, seed: int) -> Iterator[Sample]:
    """About `count` samples over all tasks; the same for the same arguments."""
    seen: set[str] = set()
    for topic, generators, share in _TOPICS:
        total = sum(weight for _, weight in generators)
        for generator, weight in generators:
            rng = random.Random(f"{seed}/{_DRAWN_AS}.{topic}/{generator.__name__}")
            wanted = round(count * share * weight / total)
            yield from _distinct(_endless(generator, rng), wanted, seen)
    each = round(count * GYM_SHARE / len(reasoning.GYM_TASKS))
    for task in reasoning.GYM_TASKS:
        yield from _distinct(reasoning.gym_samples(task, each, seed), each, seen)


def _split_samples(
    samples: Iterable[tuple[str, Sample]], seed: int, share: float
) -> Iterator[tuple[bool, Row]]:
    """Rows of generated samples with their side: all samples of a group are held or none."""
    for number, (source, sample) in enumerate(samples):
        key = f"{sample.domain}:{sample.group}"
        if sample.domain in ("code", "edit"):
            key = f"program:{sample.group}"
        name = source if source.startswith("python") else f"{source}:{sample.task}"
        row = single_turn(
            f"{name.replace(':', '-')}-{number}",
            sample.domain,
            name,
            sample.prompt,
            sample.response,
        )
        yield stable_fraction(seed, key) < share, row


def _follow_ups(rows: list[Row], seed: int) -> Iterator[Row]:
    """Conversations in which a user gives two or three unrelated tasks in turn."""
    rng = random.Random(f"{seed}/follow-ups/{len(rows)}")
    short = [row for row in rows if len(row_text(row)) < 700]
    for number in range(round(len(rows) * FOLLOW_UP_SHARE)):
        if len(short) < 3:
            return
        chosen = rng.sample(short, rng.choice([2, 2, 3]))
        messages: list[Message] = [message for row in chosen for message in row["messages"]]
        yield {
            "id": f"generated-follow_up-{len(rows)}-{number}",
            "domain": chosen[-1]["domain"],
            "source": "generated:follow_up",
            "messages": messages,
        }


def _with_system(rows: list[Row], seed: int) -> None:
    """Gives some rows a system message, so that one in a request is nothing new."""
    for row in rows:
        draw = stable_fraction(seed, f"system/{row['id']}")
        if draw < SYSTEM_SHARE and row["domain"] != "dialogue":
            system = SYSTEM_PROMPTS[int(draw / SYSTEM_SHARE * len(SYSTEM_PROMPTS))]
            row["messages"] = [{"role": "system", "content": system}, *row["messages"]]


def _stats(rows: list[Row]) -> dict[str, dict[str, dict[str, int]]]:
    counts: dict[str, dict[str, Counter[str]]] = {
        "domain": defaultdict(Counter),
        "source": defaultdict(Counter),
    }
    for row in rows:
        chars = len(row_text(row))
        for key, name in (("domain", row["domain"]), ("source", row["source"])):
            counts[key][name].update(rows=1, characters=chars)
    return {key: {name: dict(c) for name, c in sorted(d.items())} for key, d in counts.items()}


def _collect(
    shared: Path, seed: int, generated_rows: int, python_chars: int, progress: Progress
) -> tuple[list[Row], list[Row]]:
    """All rows, split into train and held."""
    sides: tuple[list[Row], list[Row]] = ([], [])
    progress("reading and grouping the instructions")
    instruct = list(instruct_rows(shared))
    held_flags = split_corpus_rows(instruct, seed, HELD_SHARE)
    for row, held in zip(instruct, held_flags, strict=True):
        sides[held].append(row)
    progress("reading the dialogues")
    for row in dialogue_rows(shared):
        first = " ".join(row["messages"][0]["content"].lower().split())
        sides[stable_fraction(seed, first) < HELD_SHARE].append(row)
    progress("generating tasks")
    made: tuple[list[Row], list[Row]] = ([], [])
    samples = (("generated", sample) for sample in generated_samples(generated_rows, seed))
    for held, row in _split_samples(samples, seed, HELD_SHARE):
        made[held].append(row)
    progress("reading Python source")
    source = ((f"python:{name}", sample) for name, sample in python_samples(python_chars, seed))
    for held, row in _split_samples(source, seed, HELD_SHARE):
        sides[held].append(row)
    for side, rows in zip(sides, made, strict=True):
        side.extend(rows)
        side.extend(_follow_ups(rows, seed))
        _with_system(side, seed)
        random.Random(seed).shuffle(side)
    return sides


def build_corpus(
    shared: Path,
    out: Path,
    seed: int = 0,
    generated_rows: int = 110_000,
    python_chars: int = 7_000_000,
    progress: Progress = _log.info,
) -> dict[str, object]:
    """Writes `out`/train.jsonl, held.jsonl and stats.json and returns the stats.

    Deterministic for the same arguments, data and installed packages. About 4% of the groups
    of every source are held (`split.py` says what a group is), less those a train row gives away.

    Raises CorpusError when the data files are missing or malformed.
    """
    train, held = _collect(shared, seed, generated_rows, python_chars, progress)
    progress("leaving out held rows that a train row gives away")
    held = without_near_copies(held, train)
    out.mkdir(parents=True, exist_ok=True)
    stats: dict[str, object] = {"seed": seed, "repeats": REPEATS}
    for name, side in zip(("train", "held"), (train, held), strict=True):
        write_rows(out / f"{name}.jsonl", side)
        stats[name] = _stats(side)
    (out / "stats.json").write_text(json.dumps(stats, indent=1) + "\n", encoding="utf-8")
    return stats
