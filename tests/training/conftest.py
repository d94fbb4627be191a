"""A target that knows the counting language, trained once for everybody."""

from dataclasses import replace

import pytest
import torch

from tests.training.counting import GEOMETRY, HYPER, Counting, make_rows
from training.model import Llama
from training.target import train_target
from training.trainer import Budget, Run


@pytest.fixture(scope="session")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Counting:
    """Of three layers, as EAGLE-3 reads so many. It takes half a minute where bfloat16 is slow;
    who changes the model works on a copy."""
    torch.manual_seed(0)
    model, held = Llama(replace(GEOMETRY, layers=3)), make_rows(40, seed=1)
    folder = tmp_path_factory.mktemp("counting")
    budget = Budget(tokens=60_000, warmup_tokens=2_000)
    run = Run(folder / "work", folder / "out", budget, HYPER, report=lambda _: None)
    losses = train_target(model, make_rows(400), held, run)
    return Counting(model, held, losses, folder / "work")
