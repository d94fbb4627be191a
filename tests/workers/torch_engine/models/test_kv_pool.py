"""Rows move about; what they hold does not change."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.torch_engine.models import kv_pool
from workers.torch_engine.models.kv_pool import KvPool, KvShape, Lease

ROWS, CAPACITY = 4, 6


class Model:
    """A pool, and what each of its leases ought to hold."""

    def __init__(self) -> None:
        self.pool = KvPool(
            KvShape(2, 1, 1),
            rows=ROWS,
            capacity=CAPACITY,
            dtype=torch.float32,
            device=torch.device("cpu"),
        )
        self.running: list[tuple[Lease, list[float]]] = []
        self.kept: list[tuple[Lease, list[float]]] = []
        self.drafted: dict[Lease, list[float]] = {}
        self.written = 0.0

    def write(self, lease: Lease, count: int) -> list[float]:
        values = [self.written + i for i in range(1, count + 1)]
        self.written += count
        slots = slice(lease.length, lease.length + count)
        self.pool.data[:, lease.row, :, slots] = torch.tensor(values)[:, None]
        lease.length += count
        return values

    def do(self, action: str, which: int, count: int) -> None:
        pool = self.pool
        if action == "acquire" and pool.free_rows:
            lease = pool.acquire()
            self.running.append((lease, self.write(lease, count)))
        elif action == "copy" and pool.free_rows and (everyone := self.running + self.kept):
            source, values = everyone[which % len(everyone)]
            lease = pool.acquire()
            pool.copy(source, lease, min(count, len(values)))
            self.running.append((lease, values[:count]))
        elif action in ("release", "keep") and self.running:
            lease, values = self.running.pop(which % len(self.running))
            self.drafted.pop(lease, None)
            if action == "keep":
                pool.keep(lease)
                self.kept.append((lease, values))
            else:
                pool.release(lease)
        elif action == "settle":
            pool.settle()
        elif action == "write" and self.running:
            lease, values = self.running[which % len(self.running)]
            more = self.write(lease, min(count, CAPACITY - len(values)))
            values.extend(more)
            self.drafted.pop(lease, None)
        elif action == "draft" and self.running:
            lease, values = self.running[which % len(self.running)]
            self.drafted[lease] = self.write(lease, min(count, CAPACITY - len(values)))
            lease.length = len(values)
        elif action == "accept" and self.drafted:
            lease, values = next(one for one in self.running if one[0] in self.drafted)
            accepted = self.drafted.pop(lease)[:count]
            pool.commit(lease, range(len(accepted)))
            values.extend(accepted)
        elif action in ("drop", "take_back") and self.kept:
            lease, values = self.kept.pop(which % len(self.kept))
            if action == "drop":
                pool.drop(lease)
            else:
                pool.take_back(lease, min(count, len(values)))
                self.running.append((lease, values[:count]))

    def check(self) -> None:
        everyone = self.running + self.kept
        assert len({lease.row for lease, _ in everyone}) == len(everyone)
        assert self.pool.free_rows == ROWS - len(self.running) - len(self.kept)
        for lease, values in everyone:
            assert lease.length == len(values)
            held = self.pool.data[:, lease.row, :, : lease.length, 0]
            assert held.tolist() == [[values, values]] * 2


# rows have to be there before they can be moved
actions = st.sampled_from(["acquire", "acquire", "keep", "keep", "copy", "release"]) | (
    st.sampled_from(["drop", "take_back", "settle", "settle", "write", "draft", "accept"])
)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(actions, st.integers(0, 9), st.integers(1, CAPACITY)), min_size=15, max_size=50
    )
)
def test_rows_keep_what_they_hold(script: list[tuple[str, int, int]]) -> None:
    """Rows only move in `settle`, which ends with those in use together."""
    model = Model()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kv_pool, "BLOCK", 2)
        for step in script:
            rows = {lease: lease.row for lease, _ in model.running + model.kept}
            model.do(*step)
            model.check()
            assert step[0] == "settle" or all(lease.row == at for lease, at in rows.items())
        for _ in range(ROWS * CAPACITY):
            model.do("settle", 0, 0)
        model.check()
    rows = sorted(lease.row for lease, _ in model.running)
    assert not rows or rows == [*range(rows[0], rows[-1] + 1)]
