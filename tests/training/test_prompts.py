"""The shipped prompts: enough per domain, and none that measures is a training text."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from ops.common.prompts import read
from schemas.json_files import json_lines
from training.generations import read_generations
from training.judge import LARGE_GROUP
from training.tune import read_replay

SHINGLE, RARE, SAME = 8, 12, 0.3
"""A prompt is taken from a text that has this share of those of its word 8-grams that are in at
most RARE texts."""
ROOT = Path(__file__).parents[2]
DOMAINS = (
    *("code", "creative", "dialogue", "edit", "general"),
    *("logic", "math", "qa", "tool_use", "translation"),
)
SHIPPED = ROOT / "ops" / "data"
PROMPTS = [row for _, row in json_lines(SHIPPED / "prompts.jsonl")]
REPLAY = {prompt.id: prompt for prompt in read(SHIPPED / "replay_prompts.jsonl")}
REPLAYED = ROOT / "bundles" / "smollm2" / "replay.jsonl"


def test_every_domain_has_enough_distinct_prompts():
    assert min(Counter(row["domain"] for row in PROMPTS)[domain] for domain in DOMAINS) >= 24
    assert len({row["id"] for row in PROMPTS}) == len(PROMPTS)
    assert len({row["prompt"] for row in PROMPTS}) == len(PROMPTS)
    assert {key for row in PROMPTS for key in row} == {"id", "domain", "prompt", "response"}


def test_no_replayed_prompt_measures() -> None:
    files = ("prompts", "generated_prompts", "tasks")
    measuring = [prompt for name in files for prompt in read(SHIPPED / f"{name}.jsonl")]
    texts = [message["content"] for prompt in measuring for message in prompt.messages]
    own = {prompt.id: prompt.text for prompt in REPLAY.values()}
    shares = closest(own, texts)
    assert max(shares.values()) < SAME, [name for name in shares if shares[name] >= SAME]


def test_smollm2_replays_all_kinds_and_is_judged_on_each() -> None:
    assert REPLAYED.stat().st_size < 1e6
    lines = [line for line in read_generations(REPLAYED) if line["domain"] != "chat"]
    assert all(REPLAY[line["id"]].domain == line["domain"] for line in lines)
    held = Counter(sample.fit_id for sample in read_replay(REPLAYED)[1])
    assert {f"replay {domain}" for domain in (*DOMAINS, "chat")} == {*held}
    assert min(held.values()) >= LARGE_GROUP


def shingles(text: str) -> set[int]:
    """Hashes of a text's word 8-grams; a shorter text is one."""
    words = re.findall(r"\w+", text.lower())
    starts = range(max(1, len(words) - SHINGLE + 1))
    return {hash(tuple(words[i : i + SHINGLE])) for i in starts}


def closest(own_texts: Mapping[str, str], texts: Iterable[str]) -> dict[str, float]:
    """Per prompt the largest share of its rare word 8-grams that one of `texts` has. Rare are
    those in at most RARE texts: others are the wording of a task."""
    own = {name: shingles(text) for name, text in own_texts.items()}
    wanted = set().union(*own.values())
    holders: dict[int, list[int]] = defaultdict(list)
    for index, text in enumerate(texts):
        for shingle in shingles(text) & wanted:
            holders[shingle].append(index)
    shares = {}
    for name, mine in own.items():
        rare = [shingle for shingle in mine if len(holders.get(shingle, ())) <= RARE]
        found = Counter(index for shingle in rare for index in holders.get(shingle, ()))
        shares[name] = max(found.values(), default=0) / max(len(rare), 1)
    return shares
