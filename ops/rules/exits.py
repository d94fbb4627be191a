"""Drafting with the target's own first layers: how often they say what all of them say."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ops.rules.costs import Costs
from router.speedup import harmonic_mean
from workers.torch_engine.models.layout import Span
from workers.torch_engine.models.llama import Llama
from workers.torch_engine.models.operators import Operator, rms_norm
from workers.torch_engine.models.weights import load_tensor

SIXTHS = (1, 2, 3, 4, 5)
LAST = (2, 1)
"""Exits after so many sixths of the layers, and so many before the last."""
CHAINS = (1, 2, 3, 4)
"""Draft tokens of a step."""

Agreement = NDArray[np.bool_]
"""[positions]: whether the exit's favourite is the answer's token, from the second token on."""


class Exits:
    """The final norm and the LM head on the hidden state after some of the layers."""

    def __init__(self, model: Llama, folder: Path) -> None:
        """folder: of the target's weights."""
        self.layers = model.layer_count
        sixths = [round(self.layers * share / 6) for share in SIXTHS]
        found = {*sixths, *(self.layers - before for before in LAST)}
        self.after = sorted(after for after in found if 0 < after < self.layers)
        self._model, self._norm = model, _final_norm(model, folder)

    @torch.inference_mode()
    def agree(self, prompt: Sequence[int], answer: Sequence[int]) -> dict[int, Agreement]:
        """By exit, along an answer that the target has given: one forward over all of it.

        A chain of draft tokens is wrong from its first wrong one on, and up to there the layers
        have read what the answer says: the chain that begins at a position is accepted as far as
        agreement goes on from there.
        """
        pool = self._model.make_pool(1, len(prompt) + len(answer))
        tokens = [*prompt, *answer[:-1]]
        span = Span(pool.acquire(), tokens, logits_from=len(tokens) - 1)
        _, states = self._model.forward(self._model.lay_out([span], pool), pool, self.after)
        said = torch.tensor(answer[1:])
        return {
            after: (self._favourites(states[after][len(prompt) :]) == said).numpy()
            for after in self.after
        }

    def _favourites(self, states: Tensor) -> Tensor:
        return self._model.read_out(self._norm(states)).argmax(-1)


def _final_norm(model: Llama, folder: Path) -> Operator:
    weight = load_tensor(folder, "model.norm.weight").float() + model.shape.norm_offset
    return rms_norm(weight.to(model.dtype), model.shape.eps)


def figures(found: Sequence[Mapping[int, Agreement]], layers: int, costs: Costs) -> dict[str, Any]:
    """By exit: the share of positions that agree, the probability that the first, the first two,
    ... tokens of a draft are accepted, and the speedup by draft tokens."""
    return {
        str(after): {
            "agrees": float(np.concatenate([one[after] for one in found]).mean()),
            "survival": [survival([one[after] for one in found], n) for n in CHAINS],
            "speedup": {
                str(n): harmonic_mean(
                    [_speedup(one[after], n, after / layers, costs) for one in found]
                )
                for n in CHAINS
            },
        }
        for after in (found[0] if found else ())
    }


def survival(agreements: Sequence[Agreement], tokens: int) -> float:
    """The share of positions from which so many in a row agree."""
    rows = [
        np.lib.stride_tricks.sliding_window_view(one, tokens).all(axis=1)
        for one in agreements
        if len(one) >= tokens
    ]
    return float(np.concatenate(rows).mean()) if rows else 0.0


def _speedup(agrees: Agreement, tokens: int, share: float, costs: Costs) -> float:
    """Of one answer. A draft token takes its share of the layers, and the LM head; what they have
    read is not read again by verification, which the engine could not do as it is."""
    layers = costs.plain - costs.read_out
    drafted = share * layers + costs.read_out
    at, seconds = 0, 0.0
    while at < len(agrees):
        count = min(tokens, len(agrees) - at - 1)
        whole = costs.seconds((), count)
        seconds += whole - share * (whole - costs.plain) + count * drafted
        came = agrees[at : at + count]
        at += 1 + (count if came.all() else int(came.argmin()))
    return len(agrees) * costs.plain / seconds
