"""An ingress's line to the head training actor, without Ray."""

import asyncio

import pytest
from sampled import sample

from deployments.head_training import actor as actor_module
from deployments.head_training.actor import SampleLine
from deployments.head_training.samples import Samples
from schemas import FeedbackConfig


class Door:
    """Leads to the samples, where there is an actor that has them."""

    def __init__(self, samples):
        self.samples, self.open = samples, True
        self.batches = []

    async def connect(self):
        if not self.open:
            raise ValueError("no such actor")
        return self

    async def take(self, batch):
        if not self.open:
            raise ValueError("the actor has died")
        self.batches.append(len(batch))
        self.samples.take(batch)


@pytest.fixture
def door(tmp_path):
    feedback = FeedbackConfig(state_uri=str(tmp_path))
    return Door(Samples(feedback, "tiny", "target", lambda: 1000.0))


def ids(door):
    return [each.id for each in door.samples.kept()]


async def test_what_waits_for_the_actor_is_bounded(door, monkeypatch, caplog):
    monkeypatch.setattr(actor_module, "MOST_TOKENS", 150)
    line = SampleLine(door.connect)
    line.add(sample("first"))
    await line.send()
    door.open = False
    for i in range(5):
        line.add(sample(f"s{i}"))
        await line.send()
    assert caplog.text.count("head training is away") == 1
    door.open = True
    line.add(sample("still too many"))
    await line.send()
    line.add(sample("last"))
    await line.send()
    assert ids(door) == ["first", "s0", "s1", "s2", "last"]


async def test_answers_that_come_during_a_call_go_with_the_next(door):
    line, taken = SampleLine(door.connect), door.take

    async def meanwhile(batch):
        line.add(sample(f"after {len(door.batches)}"))
        await taken(batch)

    door.take = meanwhile
    line.add(sample("before"))
    await line.send()
    await line.send()
    assert set(ids(door)) == {"before", "after 0"}


async def test_the_end_of_serving_sends_what_waits(door):
    line = SampleLine(door.connect)
    async with line.sending():
        await asyncio.sleep(0)
        line.add(sample("last"))
    assert ids(door) == ["last"]
