"""Train a head on answers of its target: the loss, the loop, and its checkpoints."""

import ctypes
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.heads import Head, StoredHead
from training.packing import Batch, PackedTexts, Text
from training.teacher import Teacher, arithmetic, autocast

POSITION_DECAY = 0.8
"""Weight in the loss of a drafted position, in times of the position before."""
WARMUP, FALL = 0.05, 0.25
"""Shares of a run in which the learning rate rises, and in which it falls to zero at the end."""
OTHER_RATE = 1 / 6
"""Learning rate of AdamW, for all that is no matrix, in times of Muon's (arXiv 2502.16982)."""
WEIGHT_DECAY = 0.05
REPORT_STEPS = 10
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""M_TRIM_THRESHOLD and M_MMAP_MAX of <malloc.h>."""


@dataclass(frozen=True)
class Run:
    """How a head is trained.

    Texts are cut into bins of `length` tokens, with `positions` drafted tokens per slot. Whichever
    of tokens and minutes (of this run) is spent first ends the run. folder: for the checkpoint,
    from which a later run resumes. out: where the head goes. cache_gb: memory for states of the
    target. start: a head whose weights the training begins with. learning_rate: the peak.
    """

    folder: Path
    out: Path
    tokens: int
    positions: int
    learning_rate: float
    minutes: float = float("inf")
    batch_tokens: int = 4096
    length: int = 512
    cache_gb: float = 4.0
    start: StoredHead | None = None
    seed: int = 0
    report: Callable[[str], None] = print
    checkpoint_seconds: float = 300.0


@dataclass
class Progress:
    """What a checkpoint remembers besides the weights."""

    step: int = 0
    tokens: int = 0


def train_head(head: Head, teacher: Teacher, texts: Sequence[Text], run: Run) -> None:
    """Train a head and save it to `run.out`. Resumes from the checkpoint in `run.folder`.

    Raises ValueError for a checkpoint of another head, or without texts.
    """
    head = head.to(teacher.device)
    packed = PackedTexts(texts, run.length, run.positions, run.seed)
    states = StateCache(teacher, head.captures, run.cache_gb)
    head.calibrate(states.of(packed.batch(np.arange(run.batch_tokens // run.length) % len(packed))))
    if run.start is not None:
        head.load(run.start)
    run.report(f"{len(texts)} texts, a pass is {len(packed)} bins of {run.length} tokens")
    if teacher.device.type == "cpu":
        _keep_freed_memory()
    _Training(head, teacher, states, run).go(packed.batches(run.batch_tokens))
    head.save(run.out)


class _Training:
    """One training of a head."""

    def __init__(self, head: Head, teacher: Teacher, states: "StateCache", run: Run) -> None:
        self.head, self.teacher, self.states, self.run = head, teacher, states, run
        self.progress, self.started = Progress(), time.monotonic()
        self.parameters = list(head.parameters())
        parameters = list(head.named_parameters())
        matrices = [p for n, p in parameters if p.ndim == 2 and "lm_head" not in n]
        others = [p for n, p in parameters if p.ndim != 2 or "lm_head" in n]
        self.optimizers: list[tuple[torch.optim.Optimizer, float]] = [
            (torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.0), OTHER_RATE),
            (
                torch.optim.Muon(
                    matrices, weight_decay=WEIGHT_DECAY, adjust_lr_fn="match_rms_adamw"
                ),
                1.0,
            ),
        ]

    def go(self, batches: Iterator[Batch]) -> None:
        """Train until the run is spent, with checkpoints."""
        self._resume(batches)
        saved, losses = time.monotonic(), list[Tensor]()
        while self._spent() < 1.0:
            losses.append(self._step(next(batches)))
            if self.progress.step % REPORT_STEPS == 0:
                self._report(float(torch.stack(losses).mean()))
                losses = []
            if time.monotonic() - saved > self.run.checkpoint_seconds:
                self._save()
                saved = time.monotonic()
        self._save()

    def _spent(self) -> float:
        """Return the share of the run that is used up, in [0, 1] or a little above."""
        minutes = (time.monotonic() - self.started) / 60
        return max(self.progress.tokens / self.run.tokens, minutes / self.run.minutes)

    def _step(self, batch: Batch) -> Tensor:
        """Take one optimizer step and return its loss, a scalar that the host has not read."""
        with autocast(self.teacher.device):
            loss = head_loss(self.head, self.teacher.lm_head, batch, self.states.of(batch))
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.progress.step += 1
        self.progress.tokens += len(batch.slots)
        factor = min(1.0, self._spent() / WARMUP, max(0.0, 1.0 - self._spent()) / FALL)
        for optimizer, rate in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * factor * self.run.learning_rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def _report(self, loss: float) -> None:
        minutes = (time.monotonic() - self.started) / 60
        self.run.report(
            f"step={self.progress.step} tokens={self.progress.tokens} loss={loss:.4g} "
            f"spent={self._spent():.0%} minutes={minutes:.1f}"
        )

    def _save(self) -> None:
        state = {
            "head": self.head.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer, _ in self.optimizers],
            "progress": asdict(self.progress),
        }
        temporary = self.run.folder / "last.pt.new"
        torch.save(state, temporary)
        temporary.replace(self.run.folder / "last.pt")

    def _resume(self, batches: Iterator[Batch]) -> None:
        self.run.folder.mkdir(parents=True, exist_ok=True)
        last = self.run.folder / "last.pt"
        if not last.exists():
            return
        state = torch.load(last, map_location=self.teacher.device, weights_only=True)
        own, other = self.head.vocabulary, state["head"].get("vocabulary")
        if own is not None and other is not None and not torch.equal(own, other):
            raise ValueError(
                f"{last}: the checkpoint drafts other tokens than the most frequent ones of these "
                "answers: name another folder, or the answers that the run began with"
            )
        try:
            self.head.load_state_dict(state["head"])
        except RuntimeError as error:
            raise ValueError(
                f"{last}: the checkpoint of a head of another shape; name another folder, or "
                "remove it to start anew"
            ) from error
        for (optimizer, _), saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.progress = Progress(**state["progress"])
        for _ in range(self.progress.step):
            next(batches)
        self.run.report(f"resumed at step {self.progress.step}, {self.progress.tokens:,} tokens")


def head_loss(head: Head, lm_head: Tensor, batch: Batch, states: Tensor) -> Tensor:
    """Return the mean loss over drafted positions, of which position j counts POSITION_DECAY ** j.

    It is the cross-entropy in nats of the head's distribution under the target's, and for EAGLE
    also the smooth-L1 distance from the target's features. lm_head: [vocab, hidden] of the target.
    states: of the batch, [b, t, captures + 1, hidden].
    """
    labels, documents, slots, weights = (
        torch.from_numpy(array).to(states.device)
        for array in (batch.labels, batch.documents, batch.slots, batch.weights)
    )
    final, count = states[..., -1, :].flatten(0, 1), weights.shape[1]
    # The state after the token before a drafted one gives the truth of it.
    places = torch.stack([(slots + 1 + j).clamp_max(len(final) - 1) for j in range(count)])
    with torch.no_grad():
        # Each once, since the target's LM head takes much of a step.
        asked, row_of = torch.unique(places, return_inverse=True)
        wanted = F.linear(final[asked], lm_head)
        scale = wanted.float().logsumexp(-1, keepdim=True)
        wanted = wanted if head.vocabulary is None else wanted[:, head.vocabulary]
    total = torch.zeros((), device=final.device)
    for j, output in enumerate(head.drafts(labels, states, documents, count)):
        rows, own = output.flatten(0, 1)[slots], row_of[j]
        p = (wanted[own].float() - scale[own]).exp()
        each = -(p * head.logits(rows).float().log_softmax(-1)).sum(-1)
        if head.regression:
            apart = F.smooth_l1_loss(rows.float(), final[places[j]].float(), reduction="none")
            each = each + head.regression * apart.mean(-1)
        weight = weights[:, j]
        total = total + POSITION_DECAY**j * (each * weight).sum() / weight.sum().clamp_min(1.0)
    return total / sum(POSITION_DECAY**j for j in range(count))


class StateCache:
    """Keep the target's hidden states of bins in memory, as many as fit into `gigabytes`.

    Later passes use them; bins beyond are computed at every pass.
    """

    def __init__(self, teacher: Teacher, captures: Sequence[int], gigabytes: float) -> None:
        self._teacher, self._captures = teacher, tuple(captures)
        self._room = gigabytes * 1e9
        self._kept: dict[int, Tensor] = {}

    def of(self, batch: Batch) -> Tensor:
        """Return the states of a batch [rows, length, captures + 1, hidden].

        They are on the target's device, in the precision of `arithmetic`.
        """
        device = self._teacher.device
        if all(number in self._kept for number in batch.bins):
            states = torch.stack([self._kept[number] for number in batch.bins]).to(device)
            return states.to(arithmetic(device))
        ids, documents = (torch.from_numpy(a).to(device) for a in (batch.inputs, batch.documents))
        states = self._teacher.states(ids, documents, self._captures)
        for number, own in zip(batch.bins, states, strict=True):
            if number not in self._kept and self._room >= own.nbytes:
                self._kept[number] = own.cpu().clone()
                self._room -= own.nbytes
        return states.to(arithmetic(device))


def _keep_freed_memory() -> None:
    """Let the C library reuse freed memory, where it is glibc.

    By default the kernel maps and zeroes every large tensor of a step anew: a quarter of the time
    of SmolLM2's EAGLE-3 head on two cores.
    """
    with suppress(AttributeError, OSError, TypeError):
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_MAX, 0)
        library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
