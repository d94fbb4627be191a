"""What a step costs on this machine, by drafter and draft tokens, for bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ops.bench.step_profile import profile_steps
from ops.harness.forwards import forward, median_seconds
from ops.harness.prompts import Prompt
from ops.harness.settings import Setup
from router.fit.speedup import BASELINE
from workers.bundle import load_bundle
from workers.torch_engine.models.model import load_target

ROWS = (1, 2, 3, 4, 5, 6, 8, 11, 17)
"""Tokens of the target's forwards that are timed; between two it is linear."""


@dataclass(frozen=True)
class StepSeconds:
    """whole: of each method's usual step. drafting: of these, what neither a plain step nor the
    target's forward over the draft takes. rows, forwards: the target's forward by its tokens."""

    whole: Mapping[str, float]
    drafting: Mapping[str, float]
    rows: NDArray[np.float64]
    forwards: NDArray[np.float64]

    def of(self, drafter: str | None, length: int, levels: int) -> float:
        """Of a step that verifies `length` tokens, drafted in so many of the drafter's levels:
        drafting costs in proportion, which flatters drafters that draft all at once."""
        plain = self.whole[BASELINE]
        if drafter is None:
            return plain
        more = np.interp(length + 1, self.rows, self.forwards) - self.forwards[0]
        return plain + float(more) + self.drafting[drafter] * min(1.0, length / levels)


def measure(setup: Setup, prompts: Sequence[Prompt], max_tokens: int) -> StepSeconds:
    """Time drafting, steps and the target's forwards, one request at a time at temperature 0."""
    steps = profile_steps(setup, prompts, max_tokens)
    folder = load_bundle(setup.bundle).part("target")
    model = load_target(folder, setup.engine.dtype, torch.device("cpu"))
    with torch.inference_mode():
        medians = median_seconds({str(rows): forward(model, 1, rows) for rows in ROWS})
    plain = steps[BASELINE]
    return StepSeconds(
        whole={name: found["step_ms"] / 1e3 for name, found in steps.items()},
        drafting={name: _drafting(found, plain) / 1e3 for name, found in steps.items()},
        rows=np.asarray(ROWS, dtype=float),
        forwards=np.maximum.accumulate([medians[str(rows)] for rows in ROWS]),
    )


def _drafting(step: Mapping[str, float], plain: Mapping[str, float]) -> float:
    verifying = step["target_forward_ms"] - plain["target_forward_ms"]
    return max(0.0, step["step_ms"] - plain["step_ms"] - verifying)
