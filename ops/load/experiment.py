"""The prompts, table, replicas and rival policies of `bench load`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deployments.artifacts import slowed
from ops.harness.boundary import InputError
from ops.harness.embedding import embed
from ops.harness.output import quiet_transformers
from ops.harness.settings import ServiceFlags, names, resolve
from ops.load.arrivals import Floats
from ops.load.capacity import bounds, capacity
from ops.load.policies import (
    ONLY,
    RANDOM,
    ROUTED,
    STATIC,
    Policy,
    Question,
    Routed,
    at_random,
    only,
    static_table,
)
from ops.load.runs import Load, Runs, Site, layout_of, simulate
from router import cluster
from router.embed import Encoder
from router.fit.profile import Profile, prompt_key
from router.prompt import Features, predictions
from router.table import load_table, restrict
from schemas import AppConfig, RoutingTable
from workers.bundle import load_bundle
from workers.replay_engine.engine import load_recording, rows_of

MOST_SECONDS = 86_400
"""A day, which is also the longest wait that an event loop passes in one go."""


@dataclass(frozen=True)
class Experiment:
    """A profile's recorded prompts and the replicas that replay it.

    prompts_seen_by_fit: the number of prompts that the table was fitted on.
    """

    config: AppConfig
    table: RoutingTable
    site: Site
    questions: tuple[Question, ...]
    prompts_seen_by_fit: int

    @classmethod
    def load(
        cls, given: ServiceFlags, profile: Path, replicas: int, temperature: float
    ) -> "Experiment":
        """Load a profile's prompts and `replicas` replicas per method that replay it.

        Raises ValueError if profile, bundle and table do not fit together, and InputError for
        methods that one of them does not have and for a profile with unusable seconds.
        """
        quiet_transformers()
        config, routing, methods = given.config, given.routing, given.methods
        setup = resolve(config, given.bundle)
        config = config.model_copy(
            update={
                "bundle": setup.bundle,
                "router": config.router.model_copy(
                    update={"routing": routing or config.router.routing}
                ),
            }
        )
        family = load_bundle(setup.bundle)
        recording = load_recording(profile, family, setup.engine.replay_slowdown)
        measured = Profile.load(profile)
        _check_seconds(profile, measured)
        encoder = Encoder(config.router.encoder, config.router.encoder_threads)
        folder = config.router.routing or setup.bundle / "routing"
        fitted = load_table(folder, encoder.info, recording.meta.settings_hashes)
        fitted = slowed(fitted, setup.engine.replay_slowdown)
        table = restrict(fitted, _admitted(fitted, measured, methods, config.router.lossy))
        site = Site(
            recording,
            family.backend_tokenizer(),
            setup.engine,
            tuple(layout_of(config.layout, table.methods, replicas)),
        )
        seen = set(table.provenance.get("prompts", ()))
        return cls(
            config,
            table,
            site,
            _questions(measured, table, encoder, temperature),
            sum(prompt_key(p.text) in seen for p in measured.prompts),
        )

    def load_of(self, arrivals: Floats, seed: int) -> Load:
        """Draw questions for these arrivals [n]; fewer arrivals get the first of them."""
        drawn = np.random.default_rng((seed, 1)).integers(0, len(self.questions), len(arrivals))
        return Load([self.questions[i] for i in drawn], arrivals)

    def runs(self, load: Load, seed: int, advance: Callable[[], None]) -> Runs:
        """Return every policy's outcomes under the same load."""
        outcomes = {}
        for name, (site, policy) in self._policies(seed).items():
            outcomes[name] = simulate(site, policy, load)
            advance()
        return outcomes

    @property
    def capacity(self) -> float:
        """The most requests per second that routing by cluster can reach."""
        site = self.site
        return capacity(site.layout, site.recording, self.questions, rows_of(site.engine))

    def bounds(self) -> dict[str, object]:
        """Return the most requests per second that other choices and layouts can reach."""
        methods = self.table.methods
        replicas = len(self.site.layout) // len(methods)
        rows = rows_of(self.site.engine)
        return bounds(methods, replicas, self.site.recording, self.questions, rows)

    @property
    def rivals(self) -> int:
        """The number of policies that `runs` runs."""
        return len(self._policies(0))

    def _policies(self, seed: int) -> dict[str, tuple[Site, Policy]]:
        site, table, config = self.site, self.table, self.config.router
        everywhere = {m: site.with_layout([(m,)] * len(site.layout)) for m in table.methods}
        return {
            ROUTED: (site, Routed(table, config, seed)),
            STATIC: (site, static_table(table, config)),
            RANDOM: (site, at_random(table.methods, seed)),
            **{f"{ONLY}{m}": (place, only(m)) for m, place in everywhere.items()},
        }

    def settings(self) -> dict[str, Any]:
        """Return the settings that the figures depend on."""
        return {
            "layout": self.config.layout,
            "replicas": ["+".join(methods) for methods in self.site.layout],
            "engine": self.site.engine.model_dump(mode="json"),
            "exploration": self.config.router.exploration,
            "fit_id": self.table.fit_id,
            "prompts": len(self.questions),
            "prompts_seen_by_fit": self.prompts_seen_by_fit,
            "measured_under": self.site.recording.meta.measured_under.model_dump(mode="json"),
        }


def _check_seconds(folder: Path, profile: Profile) -> None:
    """Raise InputError for seconds that the simulated clock would take forever to pass."""
    for row in profile.rows:
        if max(row.prefill_seconds, row.decode_seconds) > MOST_SECONDS:
            raise InputError(
                f"--profile: {folder}: {row.prompt_id} took {row.method} more than "
                f"{MOST_SECONDS:,} seconds; check the seconds in rows.jsonl"
            )
    if any(step.seconds > MOST_SECONDS for step in profile.steps):
        raise InputError(
            f"--profile: {folder}: a step took more than {MOST_SECONDS:,} seconds; check the "
            "seconds in steps.jsonl"
        )


def _admitted(
    table: RoutingTable, profile: Profile, methods: str | None, lossy: bool
) -> tuple[str, ...]:
    """The methods to serve: those asked for, else all that table and profile have and the
    configuration admits."""
    known = [m for m in table.methods if m in profile.meta.methods]
    if methods is not None:
        wanted = names(methods)
        unknown = [m for m in wanted if m not in known]
        if unknown:
            raise InputError(
                f"--methods: {', '.join(unknown)} not in both profile and table, which share "
                f"{', '.join(known)}"
            )
        known = wanted
    admitted = tuple(m for m in known if lossy or table.lossless.get(m, False))
    if not admitted:
        raise InputError("--methods: none is lossless; set router.lossy to allow lossy methods")
    return admitted


def _questions(
    profile: Profile, table: RoutingTable, encoder: Encoder, temperature: float
) -> tuple[Question, ...]:
    """The prompts that every method answered at this temperature."""
    kept = [
        p
        for p in profile.prompts
        if all((p.id, temperature, m) in profile.cells for m in table.methods)
    ]
    if not kept:
        raise InputError(
            f"--temperature: the profile has no prompt that {', '.join(table.methods)} all "
            f"answered at {temperature}"
        )
    texts, tokens = [p.text for p in kept], [len(p.token_ids) for p in kept]
    vectors = embed(encoder, texts, "prompts")
    labels = cluster.assign(table.centroids, vectors)
    said = predictions(table, vectors, texts, tokens)
    return tuple(
        Question(
            p.token_ids,
            int(c),
            Features(len(p.token_ids), profile.meta.max_tokens, temperature, own),
            p.text,
        )
        for p, c, own in zip(kept, labels, said, strict=True)
    )
