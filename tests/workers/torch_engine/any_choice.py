"""Replace the controller's choices by any drafter for any sequence."""

import random

import pytest

from workers.drafting.controller import Arm, Batch, Controller, Decision, Place


def choose_anyhow(monkeypatch: pytest.MonkeyPatch, draw: random.Random) -> None:
    """Let any drafter or none draft for any of the sequences; the others copy, or draft nothing."""

    def choose(self: Controller, batch: Batch) -> Decision:
        missing = {name: batch.missing(name) for name in self.drafters}
        name = draw.choice([None, *(n for n, unread in missing.items() if unread is not None)])
        place = Place(self.estimates, 1, greedy=batch.greedy)
        drafter = self.drafters.get(name or "")
        arm = Arm(name or "", drafter.levels if drafter else 0, look_ups=True, tree=True)
        step = self._begin(place, arm, batch, drafter)
        self._look_up(step, batch.limits)
        can = [i for i, unread in enumerate(missing.get(name) or ()) if unread is not None]
        taken = [i for i in can if draw.random() < 0.6]
        if drafter is not None and taken:
            self._with_draft(step, drafter, taken)
            step.price = 0.0
        return step

    def granted(_: Controller, _step: Decision, probabilities: list[list[float]]) -> list[int]:
        return [draw.randint(0, len(one)) for one in probabilities]

    monkeypatch.setattr(Controller, "choose", choose)
    monkeypatch.setattr(Controller, "granted", granted)
