"""The training loop of heads: resumable, timed, logged, on CPU or CUDA."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from training.heads.packing import HeadBatch
from training.memory import keep_freed_memory
from training.precision import autocast
from training.prefetch import prefetched

Loss = Callable[..., Tensor]
"""What `Prepare` made of a batch -> the weighted mean loss, a scalar."""

Prepare = Callable[[HeadBatch, torch.device], tuple[Tensor, ...]]
"""A batch as the tensors that the loss takes, on the device."""


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


@dataclass(frozen=True)
class Run:
    """Where one training keeps its state and leaves its model, and how it runs.

    `folder` holds checkpoints and the log, `out` gets the finished model. With `patience`, held
    loss that has not fallen for so many evaluations (one every `eval_every` steps) ends the run
    early, and the best weights seen are kept.
    """

    folder: Path
    out: Path
    budget: Budget
    hyper: Hyper
    seed: int = 0
    device: str = "cpu"
    report: Callable[[str], None] = print
    patience: int | None = None
    eval_every: int = 200
    checkpoint_seconds: float = 300.0


@dataclass
class Progress:
    """What a checkpoint remembers beside the weights: what was done, the best held loss and the
    evaluations since, and the tokens at which a run ends that stopped improving."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    batches: int = 0
    best: float = float("inf")
    stale: int = 0
    end: int | None = None


class Trainer:
    """Trains `model` on a stream of batches by `loss`; call `run` once.

    `evaluate` returns held losses by name; "mean" among them is what patience looks at. Files in
    the run's folder: log.jsonl (a line per logged step and per evaluation), last.pt (resumed from
    when present), stable.pt (before the decay: what a longer run goes on from) and, with patience,
    best.pt.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        settings: Run,
        evaluate: Callable[[], Mapping[str, float]],
        prepare: Prepare,
    ) -> None:
        self.model, self.settings, self.evaluate = model, settings, evaluate
        self.prepare = prepare
        self.folder, self.budget, self.hyper = settings.folder, settings.budget, settings.hyper
        self.report = settings.report
        self.device = next(model.parameters()).device
        self.loss = torch.compile(loss, dynamic=False) if self.hyper.compile else loss
        self.progress = Progress()
        self.folder.mkdir(parents=True, exist_ok=True)
        parameters = list(model.named_parameters())
        matrices = [p for n, p in parameters if p.ndim == 2 and not of_tokens(n)]
        others = [p for n, p in parameters if p.ndim != 2 or of_tokens(n)]
        self.optimizers: list[tuple[torch.optim.Optimizer, float]] = [
            (
                torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.0),
                self.hyper.other_lr,
            ),
            (
                torch.optim.Muon(
                    matrices,
                    weight_decay=self.hyper.weight_decay,
                    adjust_lr_fn="match_rms_adamw",
                ),
                self.hyper.matrix_lr,
            ),
        ]
        self.parameters = [p for _, p in parameters]
        if self.device.type == "cpu":
            keep_freed_memory()

    def run(self, stream: Iterator[HeadBatch], log_every: int = 10) -> None:
        """Train until the budget is spent or held loss stops falling; resumes from last.pt."""
        self._resume(stream)
        if self.device.type == "cuda":
            stream = prefetched(stream)
        self.started = time.monotonic()
        saved = time.monotonic()
        window_tokens, window_start = self.progress.tokens, time.monotonic()
        window_loss: list[Tensor] = []
        stable_saved = self._spent() > 1 - self.budget.decay
        while self._spent() < 1.0:
            if not stable_saved and self._spent() >= 1 - self.budget.decay:
                self._save("stable.pt", end=None, stale=0)
                stable_saved = True
            window_loss.append(self._step(stream))
            if self.progress.step % log_every == 0:
                fresh = self.progress.tokens - window_tokens
                rate = fresh / (time.monotonic() - window_start)
                self._log(loss=float(torch.stack(window_loss).mean()), tokens_per_s=rate)
                window_tokens, window_loss = self.progress.tokens, []
                window_start = time.monotonic()
            if self.progress.step % self.settings.eval_every == 0:
                self._judge()
            if time.monotonic() - saved > self.settings.checkpoint_seconds:
                self._save("last.pt")
                saved = time.monotonic()
        self._save("last.pt")
        self._judge()
        self._take_best()

    def _judge(self) -> None:
        """Evaluate; out of patience, let the learning rate fall now, or end where it falls."""
        evaluation = dict(self.evaluate())
        self._log(evaluation=evaluation)
        patience = self.settings.patience
        if patience is None:
            return
        self.progress.stale += 1
        if evaluation["mean"] < self.progress.best:
            self.progress.best, self.progress.stale = evaluation["mean"], 0
            self._save("best.pt")
        if self.progress.stale < patience or self._spent() >= 1.0:
            return
        falling = self._spent() >= 1 - self.budget.decay
        share = 1.0 if falling else 1 - self.budget.decay
        self.progress.end, self.progress.stale = int(self.progress.tokens / share), 0
        what = "the run ends" if falling else "the learning rate falls from here"
        self.report(f"held loss has not fallen for {patience} evaluations: {what}")

    def _take_best(self) -> None:
        """With patience: go back to the weights of the best evaluation."""
        best = self.folder / "best.pt"
        if self.settings.patience is None or not best.exists() or not self.progress.stale:
            return
        state = torch.load(best, map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.report(f"kept the weights of step {state['progress']['step']}, the best on held rows")

    def _end(self) -> int:
        """Tokens at which the run ends."""
        return min(self.budget.tokens, self.progress.end or self.budget.tokens)

    def _spent(self) -> float:
        """Share of the budget that is used up, in [0, 1] or a little above."""
        minutes = (time.monotonic() - self.started) / 60
        return max(self.progress.tokens / self._end(), minutes / self.budget.minutes)

    def _rate(self) -> float:
        """The factor on the peak learning rates."""
        warm = min(1.0, (self.progress.tokens + 1) / max(1, self.budget.warmup_tokens))
        left = max(0.0, 1.0 - self._spent()) / self.budget.decay
        return warm * min(1.0, left)

    def _step(self, stream: Iterator[HeadBatch]) -> Tensor:
        """Take one optimizer step and return its mean loss, a scalar that the host has not read."""
        total = torch.zeros((), device=self.device)
        for _ in range(self.hyper.batches_per_step):
            batch = next(stream)
            tensors = self.prepare(batch, self.device)
            with autocast(self.device):
                loss = self.loss(*tensors)
            torch.autograd.backward(loss / self.hyper.batches_per_step)
            total += loss.detach()
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
            remaining = (self._end() - self.progress.tokens) / by_tokens / 60
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

    def _save(self, name: str, **changes: Any) -> None:
        """Write a checkpoint, with `changes` to the progress that it remembers."""
        progress = asdict(self.progress) | changes
        progress["seconds"] += time.monotonic() - self.started
        state = {
            "model": self.model.state_dict(),
            "optimizers": [o.state_dict() for o, _ in self.optimizers],
            "progress": progress,
        }
        temporary = self.folder / f"{name}.new"
        torch.save(state, temporary)
        temporary.replace(self.folder / name)

    def _resume(self, stream: Iterator[HeadBatch]) -> None:
        last = self.folder / "last.pt"
        if not last.exists():
            return
        state = torch.load(last, map_location=self.device, weights_only=True)
        try:
            self.model.load_state_dict(state["model"])
        except RuntimeError as error:
            raise ValueError(
                f"{last}: the checkpoint of a model of another shape; name another folder, or "
                "remove it to start anew"
            ) from error
        for (optimizer, _), saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.progress = Progress(**state["progress"])
        for _ in range(self.progress.batches):
            next(stream)
        self.report(f"resumed at step {self.progress.step}, {self.progress.tokens:,} tokens")


def of_tokens(name: str) -> bool:
    """Whether a parameter has a row per token of the vocabulary."""
    return "embed" in name or "lm_head" in name
