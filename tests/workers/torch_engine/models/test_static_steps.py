"""Static buffers, and what happens where nothing can be captured."""

import logging
from pathlib import Path

import pytest
import torch
from static_twins import in_static_shapes

from workers.bundle import Bundle
from workers.torch_engine.models.kv_pool import KvPool, Lease
from workers.torch_engine.models.layout import Span
from workers.torch_engine.models.llama import FINAL, Llama
from workers.torch_engine.models.static_steps import GIVE_UP, RECURRING, StaticSteps, steps_on

CPU = torch.device("cpu")
on_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_only_gpus_compute_in_static_shapes() -> None:
    assert steps_on(CPU) is None
    with in_static_shapes():
        assert steps_on(CPU) is not None


def test_what_cannot_be_captured_runs_eagerly(caplog: pytest.LogCaptureFixture) -> None:
    """As on a GPU, on a device of which no stream can be had: each shape is tried once, and after
    several that failed in a row no other is."""
    steps = StaticSteps(CPU)
    steps._graphs = True
    with caplog.at_level(logging.WARNING):
        for key in range(GIVE_UP + 2):
            for value in range(2 * RECURRING):
                said = steps.run(key, [(torch.tensor([value]), 1)], lambda given: given + 1)
                assert said.tolist() == [value + 1]
    assert len(caplog.records) == GIVE_UP + 1
    assert steps.captured == 0


def pool_of(model: Llama) -> tuple[KvPool, list[Lease]]:
    pool = model.make_pool(3, 100)
    return pool, [pool.acquire() for _ in range(3)]


def steps_of(model: Llama, pool: KvPool, leases: list[Lease]) -> list[torch.Tensor]:
    """Logits and states of steps of several shapes, and what is left in the pool."""
    said = list[torch.Tensor]()
    for lengths, width in (((0, 0, 0), 20), ((20, 9, 3), 4), ((24, 3, 7), 4), ((5, 0, 9), 1)):
        spans = []
        for lease, length in zip(leases, lengths, strict=True):
            lease.length = length
            spans.append(Span(lease, [7 * length + 3] * width))
        spans[1].parents = [-1] * width if not lengths[1] else None
        logits, hidden = model.forward(model.lay_out(spans, pool), pool, (0, FINAL))
        said += [logits, *hidden.values()]
    # without the scratch slots, which padding is written to in no order
    return [*said, pool.data[..., : pool.capacity, :]]


@on_cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.inference_mode()
def test_replayed_graphs_say_what_eager_steps_say(byte_bundle: Bundle, dtype: torch.dtype) -> None:
    folder, device = Path(byte_bundle.part("target")), torch.device("cuda")
    graphs, eager = (Llama.load(folder, dtype, device) for _ in range(2))
    eager._block.steps._graphs = False
    held = [(model, *pool_of(model)) for model in (graphs, eager)]
    for _ in range(RECURRING + 1):
        for ours, theirs in zip(*(steps_of(*one) for one in held), strict=True):
            torch.testing.assert_close(ours, theirs)
    assert graphs._block.steps.captured > 0
    assert eager._block.steps.captured == 0


@on_cuda
@torch.inference_mode()
def test_results_outlive_the_next_replay(byte_bundle: Bundle) -> None:
    """Graphs share their memory; what a forward gives is a copy."""
    model = Llama.load(byte_bundle.part("target"), torch.float32, torch.device("cuda"))
    pool, leases = pool_of(model)
    for _ in range(RECURRING):
        said = steps_of(model, pool, leases)
    kept = [tensor.clone() for tensor in said[:-1]]
    steps_of(model, pool, leases)
    assert all(torch.equal(a, b) for a, b in zip(said[:-1], kept, strict=True))
