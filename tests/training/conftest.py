"""A target that knows the counting language, trained once for everybody."""

from dataclasses import replace

import pytest
import torch

from tests.training.counting import GEOMETRY, Counting, make_rows, make_run
from training.model import Llama
from training.target import train_target


@pytest.fixture(scope="session")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Counting:
    """Of three layers, as EAGLE-3 reads so many. It takes half a minute where bfloat16 is slow;
    who changes the model works on a copy."""
    torch.manual_seed(0)
    model, held = Llama(replace(GEOMETRY, layers=3)), make_rows(40, seed=1)
    folder = tmp_path_factory.mktemp("counting")
    losses = train_target(model, make_rows(400), held, make_run(folder, 60_000))
    return Counting(model, held, losses, folder / "work")
