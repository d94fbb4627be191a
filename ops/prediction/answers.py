"""A profile's answers as arrays: what is known of a prompt beforehand, and what was accepted."""

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from router.profile import Measured, Profile
from schemas import RoutingTable, temperature_band

Floats = NDArray[np.float64]

OPENINGS = ("translate", "write", "fix", "rewrite", "summar", "explain", "what", "how", "why")
"""Words that say what is asked for."""


@dataclass(frozen=True)
class Answers:
    """n answers of every one of m methods to a prompt at a temperature, each at enough length to
    count for speed.

    labels [n]: the prompt's cluster. vectors [n, d] and features [n, f]: of its text. bands [n]: of
    the temperature. log_acceptance [n, m]: log tokens per decode step. prompt_tokens [n].
    speedups [n, m]: measured, over the profile's baseline, which took `seconds` [n].
    """

    labels: NDArray[np.intp]
    vectors: Floats
    features: Floats
    bands: NDArray[np.intp]
    temperatures: Floats
    log_acceptance: Floats
    prompt_tokens: Floats
    speedups: Floats
    seconds: Floats


def answers_of(
    profile: Profile, vectors: NDArray[np.float32], labels: NDArray[np.intp], table: RoutingTable
) -> Answers:
    """The answers of the table's methods; vectors [n, d] and labels [n] of the profile's prompts,
    in their order. Raises ProfileError where a method was not measured."""
    paired = profile.paired(table.methods)
    row_of = {prompt.id: row for row, prompt in enumerate(profile.prompts)}
    at = np.asarray([row_of[prompt] for prompt in paired.prompt_ids])
    cells = [
        [profile.cells[prompt, temperature, name] for name in table.methods]
        for prompt, temperature in zip(paired.prompt_ids, paired.temperatures, strict=True)
    ]
    features = np.asarray([features_of(prompt.text) for prompt in profile.prompts])
    tokens = np.asarray([float(some[0].prompt_tokens) for some in cells])
    return Answers(
        labels=labels[at],
        vectors=vectors[at].astype(np.float64),
        features=np.column_stack([features[at], np.log(tokens)]),
        bands=np.asarray([temperature_band(t) for t in paired.temperatures]),
        temperatures=np.asarray(paired.temperatures),
        log_acceptance=np.asarray([[_log_acceptance(cell) for cell in some] for some in cells]),
        prompt_tokens=tokens,
        speedups=paired.speedups,
        seconds=paired.baseline_seconds,
    )


def features_of(text: str) -> list[float]:
    """What a prompt's text says at no cost: how much of it repeats itself, is code, JSON, digits or
    lines, whether it asks, and how it begins."""
    words = text.split()
    trigrams = list(zip(words, words[1:], words[2:], strict=False))
    lower = text.lower()
    return [
        1.0 - len(set(trigrams)) / len(trigrams) if trigrams else 0.0,
        len(set(words)) / max(1, len(words)),
        float(bool(re.search(r"```|\bdef |\bimport |;\n", text))),
        text.count("{") / max(1, len(text)),
        sum(character.isdigit() for character in text) / max(1, len(text)),
        text.count("\n") / max(1, len(words)),
        float(text.rstrip().endswith("?")),
        *(float(word in lower) for word in OPENINGS),
    ]


def _log_acceptance(cell: Measured) -> float:
    return float(np.log(max(1.0, (cell.output_tokens - 1.0) / max(1.0, cell.target_steps - 1.0))))
