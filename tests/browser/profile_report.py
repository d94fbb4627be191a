"""A report of a made-up profile, with a chart of each kind that a report draws."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ops.report.report import Sources, make_report
from ops.tables.trace_store import TracedAnswer, TraceStore
from tests.router.routing_world import make_profile

PROMPTS = 24
METHODS = 3
TOKENS = 20


def profile_report(out: Path) -> Path:
    """The page's file. Prompts are embedded by chance, so that no encoder is needed."""
    profile, vectors = make_profile(per_cluster=PROMPTS // 2, noise=0.1)
    counted = tuple(step.model_copy(update={"tokens": 2.0}) for step in profile.steps)
    replace(profile, steps=counted).save(out / "profile")
    rng = np.random.default_rng(0)
    near = vectors + 0.1 * rng.standard_normal(vectors.shape, np.float32)
    answers = [
        TracedAnswer(
            *(prompt.id, prompt.domain, prompt.text, (1, 2, 3, 4), 0.0, method),
            *(tuple(range(TOKENS)), "length", False),
            *(_kept(rng, method), ((0.5,),) * (TOKENS - 1)),
        )
        for prompt in profile.prompts
        for method in profile.meta.methods
    ]
    TraceStore(out / "traces", profile.meta).add(answers)
    sources = Sources(out / "profile", out / "traces", None, None, 2, 0.0, 2.0, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ops.report.report.Encoder", lambda *_: None)
        patch.setattr("ops.report.report.embed", lambda *_: near)
        make_report(sources, out / "report")
    return out / "report" / "report.html"


def _kept(rng: np.random.Generator, method: str) -> tuple[tuple[float, ...], ...]:
    levels = 0 if method == "naive" else 2
    drawn = np.sort(rng.integers(0, 2, (TOKENS - 1, levels)), axis=1)[:, ::-1]
    return tuple(tuple(map(float, row)) for row in drawn)
