"""Arrival times: Poisson processes and recorded traces."""

import numpy as np
import pytest

from ops.harness.boundary import InputError
from ops.load.arrivals import poisson, trace


def test_poisson_arrivals_come_at_their_rate():
    arrivals = poisson(20_000, seed=1)
    gaps = np.diff(arrivals)
    assert arrivals[0] == 0.0
    assert gaps.min() >= 0.0
    assert gaps.mean() == pytest.approx(1.0, abs=0.03)
    assert gaps.std() == pytest.approx(1.0, abs=0.05)
    assert (poisson(20_000, seed=1) == arrivals).all()
    assert (poisson(20_000, seed=2) != arrivals).any()


def test_traces_are_stretched_to_one_arrival_a_second(tmp_path):
    table = tmp_path / "trace.csv"
    times = ["17:03.9799600", "17:04.4799600", "17:05.9799600", "18:00.0000000"]
    body = "".join(f"2023-11-16 18:{time},10,20\n" for time in times)
    table.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + body)
    assert trace(table, 3) == pytest.approx([0.0, 0.5, 2.0])
    with pytest.raises(InputError, match="has 4 arrivals, --requests asks for more"):
        trace(table, 5)
    lines = tmp_path / "trace.jsonl"
    lines.write_text('{"timestamp": 3000}\n{"timestamp": 0}\n{"timestamp": 4000}\n')
    assert trace(lines, 3) == pytest.approx([0.0, 1.5, 2.0])
    lines.write_text('{"timestamp": 0}\n{"time": 1}\n')
    with pytest.raises(InputError, match=r"trace\.jsonl, line 2: timestamp is not a number"):
        trace(lines, 2)
    lines.write_text('{"timestamp": 0}\n' * 3)
    with pytest.raises(InputError, match="at the same time"):
        trace(lines, 3)
    with pytest.raises(InputError, match=r"neither \.csv nor \.jsonl"):
        trace(tmp_path / "trace.txt", 3)
