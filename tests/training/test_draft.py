"""Distillation: the loss over chosen positions, what it learns from, where it ends."""

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.counting import GEOMETRY, Counting, make_rows, make_run
from training.draft import (
    agreement,
    distillation_loss,
    held_divergence,
    train_draft,
    weighed,
)
from training.generations import generation_rows
from training.model import Llama
from training.tokens import TokenRows, answers_only, batches, mixed

SMALL = replace(GEOMETRY, hidden=16, layers=1, heads=1, ffn=32)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 128), st.integers(0, 1000))
def test_the_loss_at_chosen_positions_is_the_loss_over_all(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weight = torch.zeros(128)
    weight[rng.permutation(128)[:count]] = torch.from_numpy(rng.random(count) + 0.1).float()
    weight = weight.view(2, 64)
    torch.manual_seed(seed)
    draft, teacher = Llama(SMALL), Llama(GEOMETRY)
    ids = torch.randint(0, 64, (2, 64))

    p, q = (m(ids).log_softmax(-1) for m in (teacher, draft))
    each = F.kl_div(q, p, reduction="none", log_target=True).sum(-1)
    full = (each * weight).sum() / weight.sum().clamp_min(1.0)
    ours = distillation_loss(draft, teacher)(ids, ids, weight)
    torch.testing.assert_close(ours, full, atol=1e-5, rtol=1e-5)

    expected = torch.autograd.grad(full, list(draft.parameters()), retain_graph=True)
    for one, other in zip(
        torch.autograd.grad(ours, list(draft.parameters())), expected, strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_chosen_positions_come_in_few_sizes_and_leave_none_out() -> None:
    sizes = set()
    for count in range(65):
        weight = torch.zeros(4, 16)
        weight.view(-1)[torch.randperm(64)[:count]] = 1.0
        chosen, weights = weighed(weight)
        assert weights.tolist() == weight.flatten()[chosen].tolist()
        sizes.add(len(chosen))
        assert len(set(chosen.tolist())) == len(chosen)
        assert set(weight.flatten().nonzero().flatten().tolist()) <= set(chosen.tolist())
    assert sizes == {16, 32, 48, 64}


@pytest.mark.slow
def test_the_compiled_loss_has_a_graph_per_row_length_and_one_per_head_size() -> None:
    draft, teacher = Llama(SMALL), Llama(SMALL).requires_grad_(False)
    eager, graphs = distillation_loss(draft, teacher), []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(eager, dynamic=False, backend=backend)
    for length in (32, 128, 256):
        for count in (20, 100, 150, 256):
            weight = (torch.arange(256).view(-1, length) < count).float()
            ids = torch.randint(0, 64, weight.shape)
            torch.testing.assert_close(compiled(ids, ids, weight), eager(ids, ids, weight))
    assert len(graphs) == 3 + 4


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.9])
def test_mixed_rows_bring_their_share_of_the_weight_in_every_pass(share: float) -> None:
    rows = answers_only(make_rows(100, domain="answers"))
    others = answers_only(make_rows(5000, seed=1, domain="corpus"))
    both = mixed(rows, others, share)
    assert both.domains == ("answers", "corpus")
    assert np.array_equal(both.row(99)[0], rows.row(99)[0])
    assert np.array_equal(both.row(5099)[0], others.row(4999)[0])
    assert both.domain[0] == 0
    assert both.domain[-1] == 1
    weight = np.add.reduceat(both.weight, both.offsets[:-1]) * both.repeats
    assert weight[100:].sum() / weight.sum() == pytest.approx(share, abs=1e-6)


def test_every_pass_draws_other_rows_of_a_large_corpus() -> None:
    rows = answers_only(make_rows(10))
    both = mixed(rows, answers_only(make_rows(2000, seed=1)), 0.5)
    stream = batches(both, 2048, seed=0)
    seen = {ids.tobytes() for _ in range(40) for ids in next(stream).inputs}
    assert len(seen) > 30


def test_prompts_weigh_nothing_in_answers() -> None:
    rows = answers_only(make_rows(3))
    tokens, weight = rows.row(1)
    assert len(tokens) == len(weight)
    assert weight[:2].tolist() == [0.0, 0.0]
    assert (weight[2:] == 1.0).all()


def test_answers_from_a_large_vocabulary_keep_their_ids(tmp_path: Path) -> None:
    file = tmp_path / "generations.jsonl"
    line = {"id": "a", "domain": "math", "temperature": 0.0, "prompt": [1, 128_000], "answer": [7]}
    file.write_text(json.dumps(line) + "\n")
    assert generation_rows(file).row(0)[0].tolist() == [1, 128_000, 7]
    file.write_text(json.dumps(line | {"prompt": [1, 65_535]}) + "\n")
    assert generation_rows(file).tokens.dtype == np.uint16


def test_distillation_brings_the_draft_to_the_target(teacher: Llama, tmp_path: Path) -> None:
    held = make_rows(40, seed=1)
    torch.manual_seed(0)
    draft = Llama(SMALL)
    before = agreement(draft, teacher, held)["mean"]
    apart = held_divergence(draft, teacher, held)["mean"]
    figures = train_draft(draft, _train_rows(), held, make_run(tmp_path, 60_000), teacher)
    assert figures.agreement["mean"] > before + 0.3
    assert figures.loss["mean"] < 0.5 * apart
    assert figures.loss == held_divergence(draft, teacher, held)


@pytest.fixture(scope="module")
def teacher(counting: Counting) -> Llama:
    return deepcopy(counting.model)


def _train_rows() -> TokenRows:
    return mixed(answers_only(make_rows(200)), answers_only(make_rows(400, seed=2)), 0.5)
