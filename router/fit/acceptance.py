"""Acceptance evidence from a profile's answers."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from router import cluster
from router.acceptance import ANSWER_TOKENS, learns_acceptance
from router.fit.profile import Profile
from schemas import TEMPERATURE_BANDS, temperature_band

Floats = NDArray[np.float64]


def acceptance_evidence(
    output_tokens: float, target_steps: float, deviation: float = 0.0
) -> tuple[float, float]:
    """Return the tokens and steps that one response adds to its cell, without the prefill's.

    deviation: predicted distance of the prompt's log acceptance from its cell's (`router.prompt`);
    the response counts with the steps that it would have taken at deviation 0.

    A long response counts as one of ANSWER_TOKENS. Otherwise a few answers that loop up to their
    limit, where copying works best, would outvote the rest of their cluster.
    """
    tokens, steps = max(0.0, output_tokens - 1.0), max(0.0, target_steps - 1.0)
    scale = ANSWER_TOKENS / max(tokens, ANSWER_TOKENS)
    return scale * tokens, scale * steps * math.exp(deviation)


def labels_of(profile: Profile, vectors: NDArray[np.float32], centroids: Floats) -> dict[str, int]:
    """Return the cluster of each of the profile's prompts by id; vectors [n, d] in their order."""
    labels = cluster.assign(centroids, vectors)
    return {p.id: int(c) for p, c in zip(profile.prompts, labels, strict=True)}


def profiled_acceptance(
    profile: Profile,
    names: Sequence[str],
    label_of: dict[str, int],
    clusters: int,
    deviations: Mapping[str, Floats],
) -> tuple[Floats, Floats]:
    """Return the tokens and steps [k, m, t] that the profile's answers add.

    deviations: [m] by prompt id, where there are any. None counts as lower than one token a step,
    the least there can be.
    """

    def count(deviations: Mapping[str, Floats], lowest: Floats) -> tuple[Floats, Floats]:
        tokens = np.zeros((clusters, len(names), len(TEMPERATURE_BANDS)))
        steps = np.zeros_like(tokens)
        for (prompt_id, temperature, name), cell in profile.cells.items():
            lossless = profile.meta.lossless.get(name, False)
            if name not in names or not learns_acceptance(cell.looping, lossless):
                continue
            index = (label_of[prompt_id], names.index(name), temperature_band(temperature))
            own = deviations.get(prompt_id)
            added = acceptance_evidence(
                cell.output_tokens,
                cell.target_steps,
                0.0 if own is None else max(float(own[index[1]]), float(lowest[index])),
            )
            tokens[index] += added[0]
            steps[index] += added[1]
        return tokens, steps

    tokens, steps = count({}, np.zeros(()))
    if not deviations:
        return tokens, steps
    cells = np.divide(tokens, steps, out=np.ones_like(tokens), where=steps > 0.0)
    return count(deviations, -np.log(np.maximum(1.0, cells)))
