"""An engine that decodes in static shapes says what one in exact shapes says, token for token."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from decoding import method_of
from rig import Rig
from static_twins import in_static_shapes

from workers.bundle import Bundle
from workers.torch_engine.models import static_steps

METHODS = ["naive", "eagle3", "eagle", "medusa", "ngram", "draft_verify", "adaptive"]


def answers(rig: Rig, methods: Sequence[str], **sampling: float) -> list[list[int]]:
    """Of prompts of one token up to several chunks, asked for at different times."""
    draw = random.Random(5)
    asked = []
    for index, length in enumerate((1, 30, 3, 70, 12, 5, 100, 9)):
        piece = [draw.randrange(256) for _ in range(length)]
        method = methods[index % len(methods)]
        asked.append(
            rig.submit(method, piece + piece[:9], max_tokens=10 + 5 * index, seed=index, **sampling)
        )
        for _ in range(index):
            rig.round()
    return [answer.tokens for answer in rig.finish(*asked)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_methods_share_static_batches(make_rig, byte_bundle: Bundle, temperature: float) -> None:
    """Several prompts in one forward too, and seeded answers above temperature 0."""
    wide = {"prefill_chunk": 64, "joint_prompt_tokens": 32}
    exact = answers(make_rig(byte_bundle, METHODS, **wide), METHODS, temperature=temperature)
    with in_static_shapes():
        static = make_rig(byte_bundle, METHODS, **wide)
    assert answers(static, METHODS, temperature=temperature) == exact


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_answers_from_cuda_graphs_are_the_same(make_rig, byte_bundle, monkeypatch):
    graphs = make_rig(byte_bundle, METHODS, device="cuda")
    monkeypatch.setattr(static_steps, "DEVICES", frozenset())
    exact = make_rig(byte_bundle, METHODS, device="cuda")
    assert answers(graphs, METHODS) == answers(exact, METHODS)
    assert graphs.engine._target.model._block.steps.captured > 0
    assert exact.engine._target.model._block.steps is None


@pytest.mark.parametrize(
    ("drafter", "tree", "reads"),
    [
        ("none", "chain", 1),
        ("ngram", "chain", 1),
        ("eagle3", "chain", 4),
        ("medusa", "chain", 4),
        # of each level the scores, and the tokens, which are there by then
        ("eagle3", "eagle2", 7),
    ],
)
def test_the_host_reads_once_a_level_and_once_the_choice(
    make_rig, byte_bundle: Bundle, monkeypatch: pytest.MonkeyPatch, drafter, tree, reads
) -> None:
    """Each of which would wait for a GPU; three levels at temperature 0, two sequences."""
    settings = {"stop": {}} if drafter == "none" else {}
    spec = method_of("asked", drafter, tree, "target_choice", **settings)
    with in_static_shapes():
        rig = make_rig(byte_bundle, [spec])
    asked = [rig.submit("asked", [index, 7, 8, 9] * 4, max_tokens=40) for index in range(2)]
    for _ in range(3):
        rig.round()
    seen = list[str]()
    for name in ("tolist", "item", "__bool__", "__int__", "__float__", "cpu", "numpy"):
        monkeypatch.setattr(torch.Tensor, name, counted(getattr(torch.Tensor, name), name, seen))
    rig.round()
    assert len(seen) == reads
    monkeypatch.undo()
    rig.finish(*asked)


def counted(read: Callable[..., Any], name: str, seen: list[str]) -> Callable[..., Any]:
    """The same, which says that it was called."""

    def noted(*given: Any, **named: Any) -> Any:
        seen.append(name)
        return read(*given, **named)

    return noted
