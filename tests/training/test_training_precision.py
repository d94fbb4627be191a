"""Training computes in what the device has units for."""

import pytest
import torch

from training import precision

CPU = torch.device("cpu")


@pytest.mark.parametrize(("units", "wanted"), [(True, torch.bfloat16), (False, torch.float32)])
def test_a_cpu_without_units_for_bfloat16_computes_in_float32(
    monkeypatch: pytest.MonkeyPatch, units: bool, wanted: torch.dtype
) -> None:
    monkeypatch.setattr(precision, "computes_bfloat16", lambda: units)
    assert precision.arithmetic(CPU) == wanted
    assert precision.arithmetic(torch.device("cuda")) == torch.bfloat16
    with precision.autocast(CPU):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == wanted
