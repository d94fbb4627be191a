"""The training loop on a tiny model: it learns, it resumes where it stopped, it ends in time."""

import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import training.trainer
from schemas.json_files import json_lines
from tests.training.counting import (
    GEOMETRY,
    HYPER,
    Counting,
    held_loss,
    make_rows,
    make_run,
    next_token_loss,
    target_batches,
    target_tensors,
    train_target,
)
from training.model import Llama
from training.trainer import Budget, Trainer


def test_saved_weights_give_transformers_logits(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    Llama(GEOMETRY).save(tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ids = torch.randint(0, 64, (2, 300))
    with torch.no_grad():
        torch.testing.assert_close(
            Llama.load(tmp_path)(ids), theirs(ids).logits, atol=1e-4, rtol=1e-4
        )


def test_training_learns_logs_and_ends_at_rate_zero(counting: Counting) -> None:
    torch.manual_seed(0)
    before = held_loss(Llama(counting.model.geometry), counting.held)["mean"]
    assert counting.losses["mean"] < 0.5 * before
    log = [row for _, row in json_lines(counting.work / "log.jsonl")]
    assert log[-1]["lr_factor"] == 0.0
    assert {"step", "tokens", "minutes", "minutes_left"} <= log[0].keys()
    assert (counting.work / "stable.pt").exists()


def test_a_run_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    train, held = make_rows(400), make_rows(10, seed=1)
    messages: list[str] = []
    for tokens in (5_000, 12_000):
        run = make_run(tmp_path, Budget(tokens=tokens, warmup_tokens=1_000), report=messages.append)
        train_target(_model(), train, held, run)
    assert any(m.startswith("resumed at step") for m in messages)
    log = [row for _, row in json_lines(tmp_path / "work/log.jsonl")]
    tokens_seen = [row["tokens"] for row in log]
    assert tokens_seen == sorted(tokens_seen)
    assert tokens_seen[-1] >= 12_000


def test_a_run_stopped_by_the_clock_still_decays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every look at the clock is a second after the one before."""
    seconds = count()
    clock = SimpleNamespace(monotonic=lambda: float(next(seconds)))
    monkeypatch.setattr(training.trainer, "time", clock)
    budget = Budget(tokens=10**9, minutes=1.0, warmup_tokens=1)
    train_target(_model(), make_rows(50), make_rows(5), make_run(tmp_path, budget))
    factors = [line["lr_factor"] for _, line in json_lines(tmp_path / "work/log.jsonl")]
    assert factors[0] > factors[-1] == 0.0


def test_a_checkpoint_of_another_shape_is_refused(tmp_path: Path) -> None:
    budget = Budget(tokens=500, warmup_tokens=1)
    train_target(_model(), make_rows(50), make_rows(5), make_run(tmp_path, budget))
    other = Llama(replace(GEOMETRY, hidden=16, heads=1))
    with pytest.raises(ValueError, match=r"last\.pt: .* another shape"):
        train_target(other, make_rows(50), make_rows(5), make_run(tmp_path, budget))


def test_a_checkpoint_without_what_early_stop_remembers_is_resumed(tmp_path: Path) -> None:
    budget = Budget(tokens=500, warmup_tokens=1)
    train_target(_model(), make_rows(50), make_rows(5), make_run(tmp_path, budget))
    last = tmp_path / "work/last.pt"
    state = torch.load(last, weights_only=True)
    for field in ("best", "stale", "end"):
        del state["progress"][field]
    torch.save(state, last)
    messages: list[str] = []
    run = make_run(tmp_path, Budget(tokens=1_000, warmup_tokens=1), report=messages.append)
    train_target(_model(), make_rows(50), make_rows(5), run)
    assert messages[0].startswith("resumed at step")


def test_out_of_patience_the_rate_falls_and_the_best_weights_are_kept(tmp_path: Path) -> None:
    """Held loss by the evaluation's number: the third is the best, and no later one."""
    model = _model()
    script = iter([3.0, 2.0, 1.0, *[2.0] * 1000])
    seen: list[dict[str, torch.Tensor]] = []
    messages: list[str] = []

    def evaluate() -> dict[str, float]:
        seen.append({k: v.clone() for k, v in model.state_dict().items()})
        return {"mean": next(script)}

    budget = Budget(tokens=10**9, warmup_tokens=1)
    run = make_run(tmp_path, budget, report=messages.append, patience=2, eval_every=3)
    trainer = Trainer(model, next_token_loss(model), run, evaluate, target_tensors)
    trainer.run(target_batches(make_rows(100), HYPER.tokens_per_batch))

    assert any("the learning rate falls" in m for m in messages)
    # five evaluations until patience ends, then a quarter of the run is the fall
    assert trainer.progress.step == pytest.approx(5 * 3 / 0.75, abs=2)
    log = [row for _, row in json_lines(tmp_path / "work/log.jsonl")]
    assert log[-1]["lr_factor"] == 0.0
    for name, kept in model.state_dict().items():
        assert torch.equal(kept, seen[2][name])
        assert not name.endswith("proj.weight") or not torch.equal(kept, seen[-1][name])


def test_out_of_patience_in_the_fall_the_run_ends(tmp_path: Path) -> None:
    model = _model()
    budget = Budget(tokens=20_000, warmup_tokens=1, decay=0.9)
    run = make_run(tmp_path, budget, patience=4, eval_every=2)
    loss = iter([1.0, *[2.0] * 1000])
    trainer = Trainer(
        model, next_token_loss(model), run, lambda: {"mean": next(loss)}, target_tensors
    )
    trainer.run(target_batches(make_rows(100), HYPER.tokens_per_batch))
    assert trainer.progress.tokens < 0.5 * budget.tokens

    again = Trainer(_model(), next_token_loss(model), run, lambda: {"mean": 2.0}, target_tensors)
    again.run(target_batches(make_rows(100), HYPER.tokens_per_batch))
    assert again.progress.step == trainer.progress.step


def test_a_step_on_added_gradients_is_a_step_on_their_mean(tmp_path: Path) -> None:
    batch = next(target_batches(make_rows(100), 512))
    models = []
    for parts in (1, 2):
        model = _model()
        hyper = replace(HYPER, batches_per_step=parts)
        run = make_run(tmp_path / str(parts), Budget(tokens=10**9, warmup_tokens=1), hyper=hyper)
        trainer = Trainer(model, next_token_loss(model), run, lambda: {"mean": 0.0}, target_tensors)
        trainer.started = time.monotonic()
        trainer._step(iter([batch] * parts))
        models.append(model)
    for one, two in zip(*(m.parameters() for m in models), strict=True):
        torch.testing.assert_close(one, two, atol=1e-4, rtol=1e-3)


def _model() -> Llama:
    torch.manual_seed(0)
    return Llama(GEOMETRY)
