"""Answers that are mixed into every round, so that a head keeps what it drafts in other kinds of
text."""

from collections import defaultdict
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from schemas import Sample
from training.generations import read_generations
from training.heads.judge import LARGE_GROUP, REPLAY


class Replay(NamedTuple):
    """Answers to learn from, and answers that judge."""

    learned: list[Sample]
    held: list[Sample]


def read_replay(file: Path | None) -> Replay:
    """Return the answers of a file that `specadapt train generate` wrote; none without a file.

    A tenth is held. If there are several domains, each has a group of its own for the judge, and a
    domain that can spare it has LARGE_GROUP held answers: with fewer, its loss would not count.
    """
    lines = [line for line in (read_generations(file) if file else ()) if line["answer"]]
    domains = {line["domain"] for line in lines}
    groups = defaultdict[str, list[Sample]](list)
    for line in lines:
        group = f"{REPLAY} {line['domain']}" if len(domains) > 1 else REPLAY
        groups[group].append(_sample(line, group))
    replay = Replay([], [])
    for samples in groups.values():
        samples.sort(key=lambda sample: (not sample.held, sample.conversation))
        least = LARGE_GROUP if len(samples) >= 2 * LARGE_GROUP else 0
        count = max(least, sum(sample.held for sample in samples))
        replay.held.extend(samples[:count])
        replay.learned.extend(samples[count:])
    return replay


def _sample(line: Mapping[str, Any], group: str) -> Sample:
    return Sample(
        id=str(line["id"]),
        conversation=sha256(str(line["id"]).encode()).hexdigest(),
        owner="",
        fit_id=group,
        cluster=-1,
        method="naive",
        temperature=line["temperature"],
        prompt_token_ids=line["prompt"],
        answer_token_ids=line["answer"],
        time=0.0,
    )
