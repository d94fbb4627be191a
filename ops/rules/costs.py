"""What a step costs by the nodes it verifies and the rows that the drafter reads."""

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
import torch

from ops.measure.decoding import EncodedPrompt
from ops.measure.forwards import forward, median_seconds
from ops.measure.stepping import Stepper
from ops.tune.tree_runs import with_tree
from router.speedup import BASELINE
from schemas import EngineConfig, MethodSpec, SamplingParams
from workers.bundle import Bundle
from workers.drafting.step_costs import StepSeconds
from workers.methods import get_method
from workers.torch_engine.models.kv_pool import TREE_ROOM

ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Of the target's forwards that are timed, and in the cost model the most there are."""
WIDTHS = (1, 4, 16)
"""Rows of the drafter's levels that are timed, below the first."""
LEVELS = 3
"""Of the drafts from which a level's seconds are told."""
TIMED, TOKENS = 6, 24
"""Prompts whose steps are timed, and tokens of their answers."""


@dataclass(frozen=True)
class Costs:
    """One request at a time. step: seconds of steps without drafting by rows verified, 1 the plain
    one. first: of drafting's first level. levels: of a further one by the rows that the drafter
    reads. read_out: of the target's LM head on one row."""

    step: Mapping[int, float]
    first: float
    levels: Mapping[int, float]
    read_out: float
    _steps: list[float] = field(init=False)
    _levels: list[float] = field(init=False)

    def __post_init__(self) -> None:
        model = StepSeconds()
        for rows, seconds in self.step.items():
            model.measured(rows, seconds)
        steps = model.of(np.arange(1.0, TREE_ROOM + 2), 1, 0)
        levels = np.interp(range(TREE_ROOM + 1), list(self.levels), list(self.levels.values()))
        object.__setattr__(self, "_steps", steps.tolist())
        object.__setattr__(self, "_levels", levels.tolist())

    def seconds(self, reads: Sequence[int], nodes: int) -> float:
        """Of a step that verifies so many nodes, by the rows of each of the drafter's forwards."""
        drafting = self.first if reads else 0.0
        return self._steps[nodes] + drafting + sum(self._levels[rows] for rows in reads[1:])

    @property
    def plain(self) -> float:
        """Of a step that drafts nothing."""
        return self._steps[0]

    def figures(self) -> dict[str, Any]:
        """What `costs_of` reads."""
        return {
            "step_ms": {str(rows): 1e3 * seconds for rows, seconds in self.step.items()},
            "first_level_ms": 1e3 * self.first,
            "level_ms": {str(rows): 1e3 * seconds for rows, seconds in self.levels.items()},
            "read_out_ms": 1e3 * self.read_out,
        }


def costs_of(figures: Mapping[str, Any]) -> Costs:
    """The costs among a file's figures."""

    def seconds(name: str) -> dict[int, float]:
        return {int(rows): ms / 1e3 for rows, ms in figures[name].items()}

    first, read_out = figures["first_level_ms"] / 1e3, figures["read_out_ms"] / 1e3
    return Costs(seconds("step_ms"), first, seconds("level_ms"), read_out)


def measure(
    bundle: Bundle,
    engine: EngineConfig,
    method: MethodSpec,
    prompts: Sequence[EncodedPrompt],
    seed: int,
) -> dict[str, Any]:
    """Costs of a method's drafter, and the seconds of its own and of plain steps; methods take
    turns. To be called where an event loop runs."""
    own = {
        cell: with_tree(method, f"{cell}", "eagle2", cell[1], nodes=max(WIDTHS), k=cell[0])
        for cell in [(1, 1), *((width, LEVELS) for width in WIDTHS)]
    }
    stepper = Stepper([get_method(BASELINE), method, *own.values()], bundle, engine)
    steps = _steps(stepper, prompts, seed)
    whole = {name: median(took for took, _ in found) for name, found in steps.items()}
    drafting = {
        cell: median(drafted for _, drafted in steps[spec.name]) for cell, spec in own.items()
    }
    model = stepper.models.target.model
    with torch.inference_mode():
        state = torch.zeros(1, model.embedding.shape[1], dtype=model.dtype, device=model.device)
        timed = {str(rows): forward(model, 1, rows) for rows in ROWS}
        medians = median_seconds(timed | {"read_out": lambda: model.read_out(state)})
    first = drafting[1, 1]
    costs = Costs(
        {rows: whole[BASELINE] + medians[str(rows)] - medians["1"] for rows in ROWS},
        first,
        {width: (drafting[width, LEVELS] - first) / (LEVELS - 1) for width in WIDTHS},
        medians["read_out"],
    )
    measured = {name: 1e3 * whole[name] for name in (BASELINE, method.name)}
    return costs.figures() | {"measured_step_ms": measured}


def _steps(
    stepper: Stepper, prompts: Sequence[EncodedPrompt], seed: int
) -> dict[str, list[tuple[float, float]]]:
    """By method the seconds of steps, and those of their drafting."""
    methods, order = stepper.models.methods, random.Random(seed)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in methods}
    for item in prompts[:TIMED]:
        for name in order.sample(list(methods), len(methods)):
            sampling = SamplingParams(max_tokens=TOKENS, temperature=0.0, ignore_eos=True)
            sequence = stepper.start(methods[name], item.token_ids, sampling)
            with torch.inference_mode():
                while sequence.finished is None:
                    whole = sequence.output_tokens and sequence.remaining > LEVELS
                    drafted, clock = sequence.tally.draft_seconds, time.perf_counter()
                    stepper.models.scheduler.round()
                    took = time.perf_counter() - clock
                    if whole:
                        found[name].append((took, sequence.tally.draft_seconds - drafted))
    return found
