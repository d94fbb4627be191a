"""What parts are built from."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from schemas.method import Setting
from workers.bundle import Bundle
from workers.drafting.lookup.past import PastAnswers
from workers.drafting.step_costs import StepCosts
from workers.torch_engine import registry
from workers.torch_engine.drafter_guard import DrafterGuard
from workers.torch_engine.models.model import Model
from workers.torch_engine.parts import Drafter


@dataclass
class Materials:
    """What parts may be built from: the bundle, the device and the sizes of the engine.

    rows: of the target's pool, of sequences that run and of those that are remembered; capacity:
    tokens of one sequence at most; chunk: tokens of prompts that may be read between two steps.
    target: its embedding and LM head may be shared. costs: what steps of the engine cost.
    past: what its methods have answered, as far as a drafter wants it.
    guard: calls the drafters, so that none harms a sequence by failing.
    """

    bundle: Bundle
    device: torch.device
    dtype: torch.dtype
    rows: int
    capacity: int
    vocab: int
    target: Model
    chunk: int
    guard: DrafterGuard
    costs: StepCosts = field(default_factory=StepCosts)
    past: PastAnswers = field(default_factory=PastAnswers)
    _drafters: dict[str, Drafter] = field(default_factory=dict)

    def drafter(self, name: str, settings: dict[str, Setting]) -> Drafter:
        """The drafter of this name and settings; methods that agree on both share one."""
        key = f"{name} {sorted(settings.items())}"
        if key not in self._drafters:
            self._drafters[key] = registry.build("drafter", name, self, settings)
            self.guard.name(self._drafters[key], name)
        return self._drafters[key]

    @property
    def drafters(self) -> list[Drafter]:
        """Every drafter built so far."""
        return list(self._drafters.values())
