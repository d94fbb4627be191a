"""What answers say of acceptance, profiled or live."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from router import belief, cluster
from router.profile import Profile
from schemas import TEMPERATURE_BANDS, Objective, temperature_band

Floats = NDArray[np.float64]

MOST_ANSWERS = 4.0
"""Answers that a long one counts for at most where mean seconds are the objective: one answer alone
must not look like a certainty."""


def acceptance_evidence(
    output_tokens: float,
    target_steps: float,
    objective: Objective,
    usual_tokens: float,
    deviation: float = 0.0,
) -> tuple[float, float]:
    """Tokens and steps that one answer adds to its cell; the prefill's token and step are left out.

    Of a prompt whose log acceptance was foretold to lie by a `deviation` (`router.regression`)
    beyond the cell's, the steps are those that it would have taken at the cell's.

    Where the mean speedup is the objective, a longer answer counts as one of ANSWER_TOKENS: a few
    answers that run to their limit (in loops, where copying is at its best) would otherwise outvote
    all others of their cluster. Where mean seconds are, answers count by their tokens, one of
    the cluster's `usual_tokens` as one of ANSWER_TOKENS, one of any length as MOST_ANSWERS at most.
    """
    tokens, steps = max(0.0, output_tokens - 1.0), max(0.0, target_steps - 1.0)
    whole = max(tokens, belief.ANSWER_TOKENS)
    if objective == "seconds":
        whole = max(1.0, usual_tokens, tokens / MOST_ANSWERS)
    scale = belief.ANSWER_TOKENS / whole
    return scale * tokens, scale * steps * math.exp(deviation)


def learns_acceptance(looping: bool, lossless: bool) -> bool:
    """Whether an answer counts for acceptance: a lossy method's loops are its own doing and would
    flatter it; a lossless method's loops are the target's, and really are finished sooner."""
    return lossless or not looping


def labels_of(profile: Profile, vectors: NDArray[np.float32], centroids: Floats) -> dict[str, int]:
    """The cluster of each of the profile's prompts, by id; vectors [n, d] in their order."""
    labels = cluster.assign(centroids, vectors)
    return {p.id: int(c) for p, c in zip(profile.prompts, labels, strict=True)}


def profiled_acceptance(
    profile: Profile,
    names: Sequence[str],
    label_of: dict[str, int],
    objective: Objective,
    usual_tokens: Floats,
    deviations: Mapping[str, Floats],
) -> tuple[Floats, Floats]:
    """Tokens and steps [k, m, t] that the profile's answers add; usual_tokens [k] of an answer;
    deviations [m] by prompt id, where there are any: no farther below its cell than one token a
    step, which is the least there can be."""
    counted = partial(_counted, profile, names, label_of, objective, usual_tokens)
    tokens, steps = counted({}, np.zeros(()))
    if not deviations:
        return tokens, steps
    cells = np.divide(tokens, steps, out=np.ones_like(tokens), where=steps > 0.0)
    return counted(deviations, -np.log(np.maximum(1.0, cells)))


def _counted(
    profile: Profile,
    names: Sequence[str],
    label_of: dict[str, int],
    objective: Objective,
    usual_tokens: Floats,
    deviations: Mapping[str, Floats],
    lowest: Floats,
) -> tuple[Floats, Floats]:
    """lowest: deviations [k, m, t] that count, where there are any."""
    tokens = np.zeros((len(usual_tokens), len(names), len(TEMPERATURE_BANDS)))
    counts = np.zeros_like(tokens)
    for (prompt_id, temperature, name), cell in profile.cells.items():
        if name not in names or not learns_acceptance(cell.looping, profile.meta.lossless[name]):
            continue
        index = (label_of[prompt_id], names.index(name), temperature_band(temperature))
        own = deviations.get(prompt_id)
        added = acceptance_evidence(
            *(cell.output_tokens, cell.target_steps, objective, float(usual_tokens[index[0]])),
            0.0 if own is None else max(float(own[index[1]]), float(lowest[index])),
        )
        tokens[index] += added[0]
        counts[index] += added[1]
    return tokens, counts
