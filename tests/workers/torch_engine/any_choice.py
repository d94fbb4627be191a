"""Replace the controller's choices by any drafter for any sequence."""

import random
from dataclasses import replace

import pytest

from workers.drafting.arms import Arm, Place
from workers.drafting.controller import Batch, Controller, Decision


def choose_anyhow(monkeypatch: pytest.MonkeyPatch, draw: random.Random) -> None:
    """Let any drafter or none draft for any of the sequences; the others copy, or draft nothing."""

    def choose(self: Controller, batch: Batch) -> Decision:
        missing = {name: batch.missing(name) for name in self.drafters}
        name = draw.choice([None, *(n for n, unread in missing.items() if unread is not None)])
        drafter, place = self.drafters.get(name or ""), Place(1, batch.greedy)
        arm = Arm(drafter.levels if drafter else 0, look_ups=True, tree=True)
        chosen = self._begin(place, arm, batch, drafter, 1.0)
        found = self._look_up(batch, batch.limits)
        can = [i for i, unread in enumerate(missing.get(name) or ()) if unread is not None]
        taken = [i for i in can if draw.random() < 0.6]
        if taken:
            return replace(self._learned(chosen, found, taken), price=0.0)
        chosen.drafter = None
        return Decision(found, [draw.randint(0, len(one.tokens)) for one in found])

    def granted(_: Controller, probabilities: list[list[float]]) -> list[int]:
        return [draw.randint(0, len(one)) for one in probabilities]

    monkeypatch.setattr(Controller, "choose", choose)
    monkeypatch.setattr(Controller, "granted", granted)
