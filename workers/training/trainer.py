"""One training loop for every model trained here: resumable, timed, logged, on CPU or CUDA."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workers.training.muon import Muon
from workers.training.tokens import Batch

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""inputs [b, t], labels [b, t], weight [b, t] -> the weighted mean loss, a scalar."""


@dataclass(frozen=True)
class Budget:
    """When to stop, and how the learning rate runs: warm-up, stable, then down to zero.

    Whichever of tokens and minutes (of this run) is spent first ends the run; the decay takes the
    last `decay` share of it, so that a run stopped by the clock still ends at learning rate zero.
    """

    tokens: int
    minutes: float = float("inf")
    warmup_tokens: int = 500_000
    decay: float = 0.25


@dataclass(frozen=True)
class Hyper:
    """Peak learning rates: Muon for matrices (arXiv 2502.16982), AdamW for the rest."""

    matrix_lr: float = 6e-3
    other_lr: float = 3e-3
    weight_decay: float = 0.05
    tokens_per_batch: int = 4096
    batches_per_step: int = 6
    compile: bool = True


@dataclass
class Progress:
    """What a checkpoint remembers beside the weights."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    batches: int = 0


class Trainer:
    """Trains `model` on a stream of batches by `loss`; call `run` once.

    Files in `folder`: log.jsonl (a line per logged step and per evaluation), last.pt (resumed from
    when present) and stable.pt (before the decay: what a longer run goes on from).
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        folder: Path,
        budget: Budget,
        hyper: Hyper,
        evaluate: Callable[[], Mapping[str, float]],
        report: Callable[[str], None] = print,
    ) -> None:
        self.model, self.folder, self.budget, self.hyper = model, folder, budget, hyper
        self.device = next(model.parameters()).device
        self.loss = torch.compile(loss, dynamic=False) if hyper.compile else loss
        self.evaluate, self.report = evaluate, report
        self.progress = Progress()
        folder.mkdir(parents=True, exist_ok=True)
        parameters = list(model.named_parameters())
        matrices = [p for n, p in parameters if p.ndim == 2 and "embed" not in n]
        others = [p for n, p in parameters if p.ndim != 2 or "embed" in n]
        self.optimizers: list[tuple[torch.optim.Optimizer, float]] = [
            (
                torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.0),
                hyper.other_lr,
            ),
            (
                Muon(matrices, weight_decay=hyper.weight_decay),
                hyper.matrix_lr,
            ),
        ]
        self.parameters = [p for _, p in parameters]

    def run(self, stream: Iterator[Batch], log_every: int = 10, eval_every: int = 200) -> None:
        """Train until the budget is spent; resumes from last.pt."""
        self._resume(stream)
        self.started = time.monotonic()
        saved = time.monotonic()
        window_tokens, window_loss, window_start = self.progress.tokens, [], time.monotonic()
        stable_saved = self._spent() > 1 - self.budget.decay
        while self._spent() < 1.0:
            if not stable_saved and self._spent() >= 1 - self.budget.decay:
                self._save("stable.pt")
                stable_saved = True
            window_loss.append(self._step(stream))
            if self.progress.step % log_every == 0:
                fresh = self.progress.tokens - window_tokens
                rate = fresh / (time.monotonic() - window_start)
                self._log(loss=float(np.mean(window_loss)), tokens_per_s=rate)
                window_tokens, window_loss = self.progress.tokens, []
                window_start = time.monotonic()
            if self.progress.step % eval_every == 0:
                self._log(evaluation=dict(self.evaluate()))
            if time.monotonic() - saved > 300:
                self._save("last.pt")
                saved = time.monotonic()
        self._save("last.pt")
        self._log(evaluation=dict(self.evaluate()))

    def _spent(self) -> float:
        """Share of the budget that is used up, in [0, 1] or a little above."""
        minutes = (time.monotonic() - self.started) / 60
        return max(self.progress.tokens / self.budget.tokens, minutes / self.budget.minutes)

    def _rate(self) -> float:
        """The factor on the peak learning rates."""
        warm = min(1.0, (self.progress.tokens + 1) / max(1, self.budget.warmup_tokens))
        left = max(0.0, 1.0 - self._spent()) / self.budget.decay
        return warm * min(1.0, left)

    def _step(self, stream: Iterator[Batch]) -> float:
        total = 0.0
        for _ in range(self.hyper.batches_per_step):
            batch = next(stream)
            inputs, labels, weight = (
                torch.from_numpy(a).to(self.device, non_blocking=True)
                for a in (batch.inputs, batch.labels, batch.weight)
            )
            with torch.autocast(self.device.type, torch.bfloat16):
                loss = self.loss(inputs, labels, weight)
            torch.autograd.backward(loss / self.hyper.batches_per_step)
            total += float(loss.detach())
            self.progress.batches += 1
            self.progress.tokens += int((batch.weight > 0).sum())
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        factor = self._rate()
        for optimizer, peak in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = peak * factor
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.progress.step += 1
        return total / self.hyper.batches_per_step

    def _log(self, **entry: Any) -> None:
        spent = self._spent()
        minutes = (time.monotonic() - self.started) / 60
        left = minutes / spent * (1 - spent) if spent > 0 and minutes > 0 else float("nan")
        by_tokens = entry.get("tokens_per_s")
        if by_tokens:
            remaining = (self.budget.tokens - self.progress.tokens) / by_tokens / 60
            left = min(remaining, max(0.0, self.budget.minutes - minutes))
        row = {
            "step": self.progress.step,
            "tokens": self.progress.tokens,
            "minutes": round(self.progress.seconds / 60 + minutes, 2),
            "minutes_left": round(left, 1),
            "lr_factor": round(self._rate(), 4),
            **entry,
        }
        with (self.folder / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(row) + "\n")
        self.report(
            " ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items())
        )

    def _save(self, name: str) -> None:
        progress = asdict(self.progress)
        progress["seconds"] += time.monotonic() - self.started
        state = {
            "model": self.model.state_dict(),
            "optimizers": [o.state_dict() for o, _ in self.optimizers],
            "progress": progress,
        }
        temporary = self.folder / f"{name}.new"
        torch.save(state, temporary)
        temporary.replace(self.folder / name)

    def _resume(self, stream: Iterator[Batch]) -> None:
        last = self.folder / "last.pt"
        if not last.exists():
            return
        state = torch.load(last, map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        for (optimizer, _), saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.progress = Progress(**state["progress"])
        for _ in range(self.progress.batches):
            next(stream)
        self.report(f"resumed at step {self.progress.step}, {self.progress.tokens:,} tokens")
