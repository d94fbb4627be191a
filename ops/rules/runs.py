"""The runs of `bench rules`: costs, recorded drafts, the first layers, lookahead."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress import Progress

from ops.cli.boundary import InputError
from ops.measure.decoding import EncodedPrompt
from ops.measure.stepping import Stepper
from ops.rules.costs import costs_of, measure
from ops.rules.exits import Exits, figures
from ops.rules.lookahead import LOOK_UP, decode_all
from ops.rules.recording import LEVELS, record
from ops.rules.replay import compare
from router.speedup import BASELINE
from schemas import EngineConfig, MethodSpec, SamplingParams
from workers.bundle import Bundle
from workers.methods import get_method
from workers.torch_engine.models.llama import Llama

SHORTEST = 8
"""Answers of fewer tokens count for nothing."""


@dataclass(frozen=True)
class RulesTask:
    """A method whose drafter is recorded, on these prompts."""

    bundle: Bundle
    engine: EngineConfig
    method: MethodSpec
    prompts: Sequence[EncodedPrompt]
    max_tokens: int
    seed: int


def read_costs(file: Path) -> dict[str, Any]:
    """What `measured` found in an earlier run. Raises InputError for another file."""
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        costs_of(found)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"--costs: {file} holds no costs; name a new file") from error
    return found


def write_costs(file: Path, found: Mapping[str, Any]) -> None:
    """For `read_costs`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found, indent=2) + "\n")


async def measured(task: RulesTask) -> dict[str, Any]:
    """Milliseconds of steps and levels, in the task's precision."""
    found = measure(task.bundle, task.engine, task.method, task.prompts, task.seed)
    settings = {"dtype": task.engine.dtype, "threads": task.engine.threads}
    return found | {"settings": settings | {"method": task.method.name}}


async def judged(
    task: RulesTask, known: Mapping[str, Any], decoded: int, bar: Progress
) -> dict[str, Any]:
    """All figures but the costs. Raises InputError for a drafter that fills no trees, for a target
    that our own forward does not compute, and where hardly an answer is long enough."""
    costs = costs_of(known)
    exact = task.engine.model_copy(update={"dtype": "float32"})
    specs = [get_method(BASELINE), get_method(LOOK_UP), task.method]
    stepper = Stepper(specs, task.bundle, exact)
    methods = stepper.models.methods
    drafting, plain = methods[task.method.name], methods[BASELINE]
    if not drafting.plan.drafter.has_distribution:
        raise InputError(
            f"--method: the drafter of {task.method.name!r} ({task.method.drafter}) fills no "
            "trees; choose a method that drafts with a model or heads"
        )
    model = stepper.models.target.model
    if not isinstance(model, Llama):
        raise InputError(
            "--bundle: its target runs through transformers, where layers are not read"
        )
    exits = Exits(model, task.bundle.part("target"))
    answers, recorded, agreed = [], [], []
    progress = bar.add_task("drafts", total=len(task.prompts))
    sampling = SamplingParams(temperature=0.0, max_tokens=task.max_tokens)
    for item in task.prompts:
        answer, _ = stepper.decode(plain, item.token_ids, sampling)
        bar.advance(progress)
        if len(answer) < SHORTEST:
            continue
        answers.append((item, answer))
        recorded.append(record(stepper, drafting, item, answer))
        agreed.append(exits.agree(item.token_ids, answer))
    found = compare(recorded, costs, task.method, LEVELS, task.seed)
    few = answers[:decoded]
    progress = bar.add_task("lookahead", total=None)
    found["layer_skip"] = figures(agreed, exits.layers, costs)
    ahead = decode_all(stepper, few, costs, task.seed, lambda: bar.advance(progress))
    return found | {"lookahead": ahead, "lookahead_answers": len(few)}
