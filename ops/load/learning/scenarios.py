"""The scenarios of `bench learning`: what happens to the service, and which prompts are asked."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ops.harness.boundary import InputError
from ops.harness.embedding import embed
from ops.harness.own_service import OwnService
from ops.load.learning.runs import Phase
from ops.load.policies import Question
from router import cluster
from router.drift import Reference
from router.embed import Encoder
from router.fit.assign import build_table
from router.fit.profile import Profile
from schemas import RoutingTable

SLOWER = 2.0


@dataclass(frozen=True)
class Prompts:
    """The questions of the recording, each with its domain."""

    questions: Sequence[Question]
    domains: Sequence[str]

    def drawn(
        self, count: int, rng: np.random.Generator, wanted: Callable[[str], bool] = lambda _: True
    ) -> list[Question]:
        """Draw questions [count] of the wanted domains with replacement.

        Raises InputError if no prompt has such a domain.
        """
        pool = [q for q, d in zip(self.questions, self.domains, strict=True) if wanted(d)]
        if not pool:
            known = ", ".join(sorted(set(self.domains)))
            raise InputError(f"--new: the profile to replay has prompts of {known} only")
        return [pool[i] for i in rng.integers(0, len(pool), count)]


def busiest(prompts: Prompts, static: Callable[[Question], str]) -> str:
    """The method that the table gives most of the prompts."""
    return Counter(static(q) for q in prompts.questions).most_common(1)[0][0]


def steady(prompts: Prompts, pairs: int, rng: np.random.Generator) -> list[Phase]:
    """Nothing happens."""
    return [Phase("steady", prompts.drawn(2 * pairs, rng))]


def slower(prompts: Prompts, method: str, pairs: int, rng: np.random.Generator) -> list[Phase]:
    """A method becomes SLOWER times slower, and recovers."""

    def by(factor: float) -> Callable[[OwnService], object]:
        return lambda service: service.set_factor(method, factor)

    return [
        Phase("before", prompts.drawn(pairs, rng)),
        Phase("slower", prompts.drawn(pairs, rng), by(SLOWER)),
        Phase("recovered", prompts.drawn(pairs, rng), by(1.0)),
    ]


def killed(prompts: Prompts, method: str, pairs: int, rng: np.random.Generator) -> list[Phase]:
    """One replica of a method is killed, and then all of them."""

    def some(count: int | None) -> Callable[[OwnService], object]:
        return lambda service: service.kill(method, count)

    return [
        Phase("before", prompts.drawn(pairs, rng)),
        Phase("one killed", prompts.drawn(pairs, rng), some(1)),
        Phase("all killed", prompts.drawn(pairs, rng), some(None)),
    ]


def new_kind(
    prompts: Prompts, new: Sequence[str], pairs: int, rng: np.random.Generator
) -> list[Phase]:
    """Prompts of domains that the table was not fitted on come instead of those that it was."""
    return [
        Phase("known prompts", prompts.drawn(pairs, rng, lambda domain: domain not in new)),
        Phase("new prompts", prompts.drawn(2 * pairs, rng, lambda domain: domain in new)),
    ]


def table_without(
    profile: Profile, domains: Sequence[str], encoder: Encoder, clusters: int, seed: int
) -> RoutingTable:
    """A table fitted on a profile's prompts of other domains. Raises InputError where too few are
    left."""
    prompts = tuple(p for p in profile.prompts if p.domain not in domains)
    if len(prompts) < clusters:
        raise InputError(f"--new: {len(prompts)} prompts are left to fit {clusters} clusters on")
    kept = {p.id for p in prompts}
    rows = tuple(row for row in profile.rows if row.prompt_id in kept)
    vectors = embed(encoder, [p.text for p in prompts], "prompts to fit")
    centroids = cluster.fit(vectors, clusters, seed)
    measured = replace(profile, prompts=prompts, rows=rows)
    table = build_table(measured, vectors, centroids, encoder.info)
    labels = cluster.assign(centroids, vectors)
    distances = Reference.of_fit(centroids, vectors, labels).state()
    return table.model_copy(update={"provenance": {**table.provenance, "distances": distances}})
