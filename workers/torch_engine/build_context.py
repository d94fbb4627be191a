"""What drafters, trees, stops and verifiers are built from."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from schemas.config import Setting
from workers.bundle import Bundle
from workers.drafting.lookup.datastore import Datastore
from workers.drafting.lookup.past import PastAnswers
from workers.drafting.step_costs import StepCosts
from workers.torch_engine import registry
from workers.torch_engine.drafter_guard import DrafterGuard
from workers.torch_engine.interfaces import Drafter
from workers.torch_engine.models.model import Model


@dataclass
class BuildContext:
    """The bundle, the device and the sizes of an engine, for building parts.

    rows: of the target's pool, for running and remembered sequences. capacity: most tokens of a
    sequence. chunk: prompt tokens read between two steps. target: its embedding and LM head may
    be shared. costs: of the engine's steps. past, datastore: answers and other texts that
    drafters look up. guard: calls the drafters.
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
    datastore: Datastore | None = None
    _drafters: dict[str, Drafter] = field(default_factory=dict)

    def drafter(self, name: str, settings: dict[str, Setting]) -> Drafter:
        """Return the drafter of this name and settings; methods with the same share it."""
        key = f"{name} {sorted(settings.items())}"
        if key not in self._drafters:
            self._drafters[key] = registry.build("drafter", name, self, settings)
            self._drafters[key].name = name
        return self._drafters[key]

    @property
    def drafters(self) -> list[Drafter]:
        """The drafters built so far."""
        return list(self._drafters.values())
