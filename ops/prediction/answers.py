"""A profile's answers as arrays: what is known of a prompt beforehand, and what was accepted."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from router import cluster
from router.correction import corrected, inputs_of_profile
from router.profile import Profile
from schemas import RoutingTable, temperature_band

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Answers:
    """n answers of every one of m methods to a prompt at a temperature, each at enough length to
    count for speed.

    labels [n]: the prompt's cluster. inputs [n, d + f]: its vector and the features of its text.
    bands [n]: of the temperature. log_acceptance [n, m]: log tokens per decode step.
    prompt_tokens [n]. speedups [n, m]: measured, over the profile's baseline, which took `seconds`
    [n].
    """

    labels: NDArray[np.intp]
    inputs: Floats
    bands: NDArray[np.intp]
    temperatures: Floats
    log_acceptance: Floats
    prompt_tokens: Floats
    speedups: Floats
    seconds: Floats


@dataclass(frozen=True)
class Learned:
    """What the forms learn from: a profile whose prompts have the vectors [n, d], and the table
    that it makes."""

    table: RoutingTable
    profile: Profile
    vectors: NDArray[np.float32]

    @cached_property
    def answers(self) -> Answers:
        """Of the profile, in the table's clusters."""
        labels = cluster.assign(self.table.centroids, self.vectors)
        return answers_of(self.profile, self.vectors, labels, self.table)

    @cached_property
    def corrected(self) -> RoutingTable:
        """The table with a regression, as `fit --predictor regression` makes it."""
        return corrected(self.table, self.profile, self.vectors)


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
    return Answers(
        labels=labels[at],
        inputs=inputs_of_profile(profile, vectors)[at],
        bands=np.asarray([temperature_band(t) for t in paired.temperatures]),
        temperatures=np.asarray(paired.temperatures),
        log_acceptance=np.asarray([[cell.log_acceptance for cell in some] for some in cells]),
        prompt_tokens=np.asarray([float(some[0].prompt_tokens) for some in cells]),
        speedups=paired.speedups,
        seconds=paired.baseline_seconds,
    )
