"""Drafts of a step, and their way from the device to the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner


@dataclass(frozen=True)
class Drafts:
    """Some rows' drafts: a list each, or together a tensor [rows, tokens] on the device."""

    rows: Sequence[int]
    tokens: Sequence[list[int]] | torch.Tensor


class DraftCopy:
    """The drafts of a step's drafters on their way to the host: one copy into vLLM's pinned memory,
    which the device makes after their forwards. Nothing waits for it before `read`."""

    def __init__(self, runner: GPUModelRunner, drafts: Mapping[str, Drafts]) -> None:
        self._drafts, self._event = drafts, runner.draft_token_ids_event
        self._copied: dict[str, torch.Tensor] = {}
        on_device = {n: d.tokens for n, d in drafts.items() if isinstance(d.tokens, torch.Tensor)}
        if not on_device:
            return
        assert runner.draft_token_ids_cpu is not None
        assert self._event is not None
        together = torch.cat([tokens.flatten() for tokens in on_device.values()])
        pinned = runner.draft_token_ids_cpu.view(-1)[: len(together)]
        pinned.copy_(together, non_blocking=True)
        self._event.record()
        apart = pinned.split([tokens.numel() for tokens in on_device.values()])
        for (name, tokens), part in zip(on_device.items(), apart, strict=True):
            self._copied[name] = part.view(tokens.shape)

    def read(self) -> dict[str, dict[int, list[int]]]:
        """Return each drafter's drafts by row."""
        if self._copied and self._event is not None:
            self._event.synchronize()
        lists = {name: tokens.tolist() for name, tokens in self._copied.items()}
        return {
            name: dict(zip(drafts.rows, lists.get(name, drafts.tokens), strict=True))
            for name, drafts in self._drafts.items()
        }
