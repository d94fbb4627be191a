"""Forwards in static shapes give what exact ones give, and what happens without a capture."""

import logging
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from static_twins import in_static_shapes
from zoo import VOCAB, random_model
from zoo import save_bundle as save

from workers.bundle import Bundle
from workers.torch_engine.models.kv_pool import TREE_ROOM
from workers.torch_engine.models.layout import Layout, Span
from workers.torch_engine.models.llama import FINAL, Llama
from workers.torch_engine.models.static_layout import WIDTHS, StaticLayout
from workers.torch_engine.models.static_steps import GIVE_UP, RECURRING, StaticSteps, steps_on

CPU = torch.device("cpu")
ROWS, CAPACITY = 5, 150
CAPTURES = (0, 1, FINAL)
Twins = tuple[Llama, Llama]


def twins_of(folder: Path) -> Twins:
    """A model that computes in exact shapes, and the same in static ones."""
    exact = Llama.load(folder, torch.float32, CPU)
    with in_static_shapes():
        return exact, Llama.load(folder, torch.float32, CPU)


@pytest.fixture(scope="module")
def twins(byte_bundle: Bundle) -> Twins:
    return twins_of(byte_bundle.part("target"))


@dataclass
class Draft:
    """Tokens that one row reads, in two forwards or in one: a chain, or a tree by its parents."""

    tokens: list[int]
    parents: list[int] | None
    first: int

    def part(self, begin: int, end: int, logits_from: int) -> dict[str, Any]:
        """A span of some of the tokens."""
        parents = None if self.parents is None else self.parents[:end]
        shape = {"tokens": self.tokens[begin:end], "parents": parents, "read": begin}
        return shape | {"logits_from": logits_from}

    def path(self, leaf: int) -> list[int]:
        """The nodes down to one of them."""
        if self.parents is None:
            return [*range(leaf + 1)]
        above = self.parents[leaf]
        return [leaf] if above < 0 else [*self.path(above), leaf]


def drafts(draw: random.Random, room: int, vocab: int) -> Draft:
    """Of any width that a step may have: a trunk and what hangs on it, or forks at the root."""
    count = min(draw.choice([1, 1, 1, 2, 3, 5, 8, 9, 30, 65]), room)
    trunk = draw.randint(max(0, count - TREE_ROOM), count)
    parents = [i - 1 if i < trunk else draw.randint(trunk - 1, i - 1) for i in range(count)]
    tokens = [draw.randrange(vocab) for _ in range(count)]
    return Draft(tokens, None if draw.random() < 0.4 else parents, draw.randint(0, count - 1))


class World:
    """Both models with a pool each, in which the same happens."""

    def __init__(self, twins: Twins) -> None:
        self.models = twins
        self.pools = [model.make_pool(ROWS, CAPACITY) for model in twins]
        self.leases = [[pool.acquire() for _ in range(ROWS)] for pool in self.pools]

    def room(self, row: int) -> int:
        return self.pools[0].capacity - self.leases[0][row].length

    def read(self, parts: dict[int, dict[str, Any]]) -> None:
        """One forward of spans by row; both say the same."""
        said = []
        for model, pool, leases in zip(self.models, self.pools, self.leases, strict=True):
            layout = model.lay_out([Span(leases[row], **part) for row, part in parts.items()], pool)
            said.append((layout, *model.forward(layout, pool, CAPTURES)))
        (exact, expected, states), (static, logits, hidden) = said
        assert isinstance(exact, Layout)
        assert isinstance(static, StaticLayout)
        assert exact.logit_starts == static.logit_starts
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)
        for capture in CAPTURES:
            torch.testing.assert_close(hidden[capture], states[capture], atol=1e-5, rtol=1e-5)

    def commit(self, row: int, kept: list[int]) -> None:
        for pool, leases in zip(self.pools, self.leases, strict=True):
            pool.commit(leases[row], kept)

    def check(self) -> None:
        """Both pools hold the same committed keys and values, and nothing but numbers."""
        exact, static = self.pools
        for row in range(ROWS):
            length = self.leases[0][row].length
            held = [pool.data[:, row, :, :length] for pool in (exact, static)]
            torch.testing.assert_close(held[1], held[0], atol=1e-5, rtol=1e-5)
        assert static.data.isfinite().all()


def live(world: World, draw: random.Random, vocab: int) -> None:
    """Five steps of some of the rows each, of whose drafts a path is kept."""
    for _ in range(5):
        rows = [row for row in range(ROWS) if draw.random() < 0.7 and world.room(row) > 1]
        made = {row: drafts(draw, world.room(row), vocab) for row in rows}
        last = draw.random() < 0.3  # logits are wanted of each one's last token
        for second in (False, True):
            spans = {
                row: (one.first, len(one.tokens)) if second else (0, one.first)
                for row, one in made.items()
            }
            parts = {
                row: made[row].part(begin, end, end - begin - 1 if last else 0)
                for row, (begin, end) in spans.items()
                if end > begin
            }
            if parts:
                world.read(parts)
        for row, one in made.items():
            world.commit(row, one.path(draw.randrange(len(one.tokens))))
        world.check()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
@torch.inference_mode()
def test_static_forwards_are_the_exact_ones(twins: Twins, seed: int) -> None:
    """Chains and trees of all lengths behind texts of all lengths, full rows among them."""
    live(World(twins), random.Random(seed), 256)


@pytest.mark.parametrize("family", ["qwen2-window", "phi3", "gemma2", "gemma3"])
@torch.inference_mode()
def test_every_family_in_static_shapes(family: str, tmp_path: Path) -> None:
    """Windows, capped scores and scaled embeddings too."""
    twins = twins_of(save(tmp_path, random_model(family), random_model(family)).part("target"))
    live(World(twins), random.Random(0), VOCAB)


@torch.inference_mode()
def test_what_no_bucket_takes_is_laid_out_exactly(twins: Twins) -> None:
    """A prompt, and a tree with more branches than bits."""
    _, static = twins
    pool = static.make_pool(2, CAPACITY)
    lease = pool.acquire()
    assert isinstance(static.lay_out([Span(lease, [1] * WIDTHS[-1])], pool), StaticLayout)
    assert isinstance(static.lay_out([Span(lease, [1] * (WIDTHS[-1] + 1))], pool), Layout)
    forks = [-1] * (TREE_ROOM + 1)
    assert isinstance(static.lay_out([Span(lease, [1] * len(forks), forks)], pool), Layout)
    with pytest.raises(ValueError, match="do not fit into a row"):
        static.lay_out([Span(lease, [1] * (pool.capacity + 1))], pool)


CPU = torch.device("cpu")


def test_only_gpus_compute_in_static_shapes() -> None:
    assert steps_on(CPU) is None
    with in_static_shapes():
        assert steps_on(CPU) is not None


def test_what_cannot_be_captured_runs_eagerly(caplog: pytest.LogCaptureFixture) -> None:
    """This device has no streams, so every capture fails. Each shape is tried once; after several
    failures in a row no other shape is tried."""
    steps = StaticSteps(CPU)
    steps._graphs = True
    with caplog.at_level(logging.WARNING):
        for key in range(GIVE_UP + 2):
            for value in range(2 * RECURRING):
                said = steps.run(key, [(torch.tensor([value]), 1)], lambda given: given + 1)
                assert said.tolist() == [value + 1]
    assert len(caplog.records) == GIVE_UP + 1
    assert steps.captured == 0
