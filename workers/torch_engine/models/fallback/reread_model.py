"""A transformers model without a cache."""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from workers.torch_engine.models.fallback.transformers_model import TransformersModel, unpadded
from workers.torch_engine.models.kv_pool import TREE_ROOM, KvPool, KvShape
from workers.torch_engine.models.layout import Layout, Span, build_layout
from workers.torch_engine.models.visibility import spelled_out


class RereadModel(TransformersModel):
    """Without a cache, read every path of every sequence anew. Works for any causal model.

    Its pool holds the tokens themselves instead of keys and values.
    """

    manner = "without a KV cache: every step reads the whole text again"

    def make_pool(self, rows: int, capacity: int) -> KvPool:
        """See TransformersModel."""
        return KvPool(
            KvShape(1, 1, 1),
            rows=rows,
            capacity=capacity + TREE_ROOM,
            dtype=torch.int64,
            device=self.device,
        )

    def lay_out(self, spans: Sequence[Span], pool: KvPool) -> Layout:
        """See TransformersModel."""
        return build_layout(spans, pool, 1, torch.float32)

    def forward(
        self, layout: Layout, pool: KvPool, captures: Collection[int] = ()
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """See TransformersModel."""
        (cache,) = pool.view(layout.first, layout.sequences, layout.context)
        cache.slots.index_copy_(0, layout.slots, layout.tokens.repeat_interleave(2)[:, None])
        count = len(layout.tokens)
        logits: list[Tensor] = [torch.empty(0)] * count
        hidden: dict[int, list[Tensor]] = {i: [torch.empty(0)] * count for i in captures}
        for path, members in _paths(cache.keys[:, 0, :, 0], layout):
            output = self.causal(
                input_ids=path[None],
                attention_mask=torch.ones_like(path)[None],
                use_cache=False,
                output_hidden_states=bool(captures),
            )
            for token, depth in members:
                logits[token] = output.logits[0, depth]
                for index, states in hidden.items():
                    states[token] = output.hidden_states[index][0, depth]
        wanted = range(count) if layout.logit_rows is None else layout.logit_rows.tolist()
        rows = torch.stack([logits[token] for token in wanted])
        return rows.float(), {i: torch.stack(states) for i, states in hidden.items()}


def _paths(known: Tensor, layout: Layout) -> list[tuple[Tensor, list[tuple[int, int]]]]:
    """Return texts that together contain each token of a forward.

    known: tokens [S, context] of the rows. Each text comes with its tokens and with pairs (index
    in the forward, index in the text) of the tokens whose output is read from it.
    """
    mask = spelled_out(layout, 1, torch.float32).mask
    if mask is None:
        return [(known[0], [(0, layout.context - 1)])]
    visible = unpadded(mask[:, 0] == 0, layout).cpu()
    rows = torch.arange(layout.sequences).repeat_interleave(layout.width)
    rows = rows if layout.unpad is None else rows[layout.unpad.cpu()]
    # a token's own slot is the last one that it sees
    own = layout.context - 1 - visible.flip(-1).int().argmax(-1)
    left = set(range(len(own)))
    paths = []
    # Last tokens first: what they see needs no text of its own.
    for leaf in reversed(range(len(own))):
        if leaf not in left:
            continue
        path = visible[leaf].nonzero()[:, 0]
        depth = {int(slot): index for index, slot in enumerate(path)}
        same_row = [t for t in left if rows[t] == rows[leaf]]
        members = [(t, depth[int(own[t])]) for t in same_row if int(own[t]) in depth]
        left -= {token for token, _ in members}
        paths.append((known[rows[leaf]][path.to(known.device)], members))
    return paths
