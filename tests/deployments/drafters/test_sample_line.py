"""An ingress's line to the drafters' actor, without Ray."""

import asyncio

import pytest
from sampled import sample

from deployments.drafters import line as line_module
from deployments.drafters.line import SampleLine
from deployments.drafters.samples import Samples
from deployments.metrics import Metrics
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
    return Door(Samples(feedback, "tiny", lambda: 1000.0))


@pytest.fixture
def counted(monkeypatch):
    """What became of the samples, by outcome."""
    metrics, counts = Metrics(), {}

    def inc(value=1.0, tags=None):
        counts[tags["outcome"]] = counts.get(tags["outcome"], 0) + value

    monkeypatch.setattr(metrics.samples, "inc", inc)
    return metrics, counts


async def test_what_is_added_arrives_in_bounded_batches(door, counted, monkeypatch):
    monkeypatch.setattr(line_module, "BATCH_TOKENS", 125)
    metrics, counts = counted
    line = SampleLine(door.connect, metrics)
    made = [sample(f"s{i}") for i in range(4)] + [sample("long", 130)]
    for each in made:
        line.add(each)
    for _ in range(4):
        await line.send()
    assert door.batches == [2, 2, 1, 0]
    assert door.samples.kept() == made
    assert counts == {"sent": 5}


async def test_what_waits_for_the_actor_is_bounded(door, counted, monkeypatch, caplog):
    monkeypatch.setattr(line_module, "MOST_TOKENS", 150)
    metrics, counts = counted
    line = SampleLine(door.connect, metrics)
    line.add(sample("first"))
    await line.send()
    door.open = False
    for i in range(5):
        line.add(sample(f"s{i}"))
        await line.send()
    assert caplog.text.count("the drafters' actor is away") == 1
    assert counts == {"sent": 1, "dropped": 2}
    door.open = True
    line.add(sample("still too many"))
    await line.send()
    line.add(sample("last"))
    await line.send()
    assert [each.id for each in door.samples.kept()] == ["first", "s0", "s1", "s2", "last"]
    assert counts == {"sent": 5, "dropped": 3}


async def test_answers_that_come_during_a_call_go_with_the_next(door, counted):
    line, taken = SampleLine(door.connect, counted[0]), door.take

    async def meanwhile(batch):
        line.add(sample(f"after {len(door.batches)}"))
        await taken(batch)

    door.take = meanwhile
    line.add(sample("before"))
    await line.send()
    await line.send()
    assert {each.id for each in door.samples.kept()} == {"before", "after 0"}


async def test_the_end_of_serving_sends_what_waits(door, counted):
    line = SampleLine(door.connect, counted[0])
    async with line.sending():
        await asyncio.sleep(0)
        line.add(sample("last"))
    assert [each.id for each in door.samples.kept()] == ["last"]
