"""The runs of `bench rules`: costs, recorded drafts, the first layers, lookahead."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress import Progress

from ops.cli.boundary import InputError
from ops.measure.decoding import EncodedPrompt
from ops.measure.prompts import fingerprint
from ops.measure.stepping import Stepper
from ops.rules.costs import costs_of, measure
from ops.rules.exits import Exits, figures
from ops.rules.lookahead import LOOK_UP, SHAPES, decode_all
from ops.rules.recording import LEVELS, record
from ops.rules.replay import compare
from ops.rules.store import Answered, load, save
from router.speedup import BASELINE
from schemas import EngineConfig, MethodSpec
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

    @property
    def recorded(self) -> dict[str, Any]:
        """What recorded drafts depend on."""
        return {
            "bundle": f"{self.bundle.name}@{self.bundle.content_hash}",
            "method": self.method.name,
            "max_tokens": self.max_tokens,
        }


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
    task: RulesTask, known: Mapping[str, Any], records: Path | None, decoded: int, bar: Progress
) -> dict[str, Any]:
    """All figures but the costs. Raises InputError for a drafter that fills no trees, for a target
    that our own forward does not compute, and where hardly an answer is long enough."""
    costs = costs_of(known)
    exact = task.engine.model_copy(update={"dtype": "float32"})
    specs = [get_method(BASELINE), get_method(LOOK_UP), task.method]
    stepper = Stepper(specs, task.bundle, exact)
    model = stepper.models.target.model
    if not stepper.models.methods[task.method.name].plan.drafter.has_distribution:
        raise InputError(
            f"--method: the drafter of {task.method.name!r} ({task.method.drafter}) fills no "
            "trees; choose a method that drafts with a model or heads"
        )
    if not isinstance(model, Llama):
        raise InputError("--bundle: its target runs through transformers, whose layers end late")
    answers = _answers(task, stepper, Exits(model, task.bundle.part("target")), records, bar)
    found = compare([one.drafts for one in answers], costs, task.method, LEVELS, task.seed)
    found["layer_skip"] = figures([one.agrees for one in answers], model.layer_count, costs)
    items = {item.prompt.id: item for item in task.prompts}
    few = [(items[one.drafts.prompt_id], one.answer) for one in answers[:decoded]]
    progress = bar.add_task("lookahead", total=(len(SHAPES) + 1) * len(few))
    ahead = decode_all(stepper, few, costs, task.seed, lambda: bar.advance(progress))
    return found | {"lookahead": ahead, "lookahead_answers": len(few)}


def _answers(
    task: RulesTask, stepper: Stepper, exits: Exits, records: Path | None, bar: Progress
) -> list[Answered]:
    """Every prompt answered, its drafts recorded, its first layers read; those that records hold
    are taken from there."""
    method, answers = stepper.models.methods[task.method.name], list[Answered]()
    progress = bar.add_task("drafts", total=len(task.prompts))
    for item in task.prompts:
        file = records / f"{fingerprint([item.prompt])}.npz" if records is not None else None
        if file is not None and file.is_file():
            found = load(file, task.recorded)
        else:
            answer, drafts = record(stepper, method, item, task.max_tokens)
            found = Answered(answer, drafts, exits.agree(item.token_ids, answer))
            if file is not None:
                save(file, found, task.recorded)
        if len(found.answer) >= SHORTEST:
            answers.append(found)
        bar.advance(progress)
    return answers
