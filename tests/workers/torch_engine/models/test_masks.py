"""The mask that the device spells out is the one that the host would have written."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.torch_engine.models.kv_pool import Lease
from workers.torch_engine.models.layout import Span, chain_mask, tree_mask

CPU = torch.device("cpu")


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(st.integers(0, 6), min_size=1, max_size=4, unique=True),
    data=st.data(),
    groups=st.integers(1, 3),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_chains(rows: list[int], data: st.DataObject, groups: int, dtype: torch.dtype) -> None:
    sizes = st.tuples(st.integers(0, 20), st.integers(1, 9), st.integers(0, 3))
    spans = []
    for row in sorted(rows):
        length, count, read = data.draw(sizes)
        spans.append(Span(Lease(row, length), [0] * count, read=read))
    found = chain_mask(spans, groups, dtype, CPU)
    assert torch.equal(found, tree_mask(spans, groups, dtype))
    spelled_out = [
        Span(s.lease, s.tokens, [*range(-1, s.read + len(s.tokens) - 1)], s.read) for s in spans
    ]
    for index, span in enumerate(spans):
        places = slice(0, len(span.tokens) * groups)
        own = span.lease.row - spans[0].lease.row
        wanted = tree_mask(spelled_out, groups, dtype)
        assert torch.equal(found[own, 0, places], wanted[own, 0, places]), index
