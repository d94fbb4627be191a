"""The measuring behind `specadapt profile --traces`: acceptance is known, seconds are measured."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from ops.harness.boundary import InputError
from ops.harness.decoding import EncodedPrompt
from ops.harness.engines import engines_of
from ops.harness.machine import measured_under
from ops.harness.prompts import Prompt
from ops.tables.profile_runs import (
    ProfilePlan,
    all_methods,
    grid_steps,
    profile_meta,
    warm_up,
)
from ops.tables.profile_store import ProfileStore, prompt_of
from ops.tables.trace_store import read_meta, read_rows
from router.fit.profile import Profile
from router.fit.traced import Costs, TracedAnswer, costs_of, expected_steps, traced_row
from schemas.profile import ProfileRow
from workers.bundle import load_bundle

CHECKS = 24
"""Prompts that are decoded with every method: for the seconds of prefills, and as the check."""


async def profile_traces(
    plan: ProfilePlan, traces: Path, out: Path, bar: Progress
) -> tuple[Profile, dict[str, float]]:
    """A profile of all answers in a trace, and by method what decoding made of CHECKS of its
    prompts: output tokens per step over the traces'.

    Raises InputError where the trace is of another bundle, dtype or other settings of a method.
    """
    bundle = load_bundle(plan.setup.bundle)
    meta = profile_meta(plan, measured_under(plan.setup, bundle))
    known = read_meta(traces)
    for name, old, new in (
        ("bundle", known.measured_under.bundle, meta.measured_under.bundle),
        ("dtype", known.measured_under.dtype, meta.measured_under.dtype),
    ):
        if old != new:
            raise InputError(f"--traces: {name} was {old}, and {new} is profiled")
    for method, settings in meta.settings_hashes.items():
        if known.settings_hashes.get(method) != settings:
            raise InputError(f"--traces: {method} was not traced with the present settings")
    rows = [row for row in read_rows(traces) if row["method"] in meta.methods]
    store = ProfileStore(out, meta)
    if store.has_answers():
        raise InputError(f"--out: {out} already has answers; name another folder")
    checked = _checked(rows, plan.temperature)
    with engines_of(plan.setup, bundle, "profile") as engines:
        await warm_up(plan, engines, checked[0])
        decoded: list[ProfileRow] = []
        task = bar.add_task("decoded", total=len(checked))
        for item in checked:
            decoded += (await all_methods(plan, engines, [item]))[item.prompt.id]
            bar.advance(task)
        await grid_steps(plan, engines, checked, store, bar)
    costs = costs_of(decoded, Profile.load(out).steps)
    _add(store, rows, lambda row: traced_row(costs, _traced(row)))
    return Profile.load(out), _over_traces(decoded, rows, plan.temperature)


def in_steps(traces: Path, methods: Sequence[str]) -> Profile:
    """Return a trace's answers by these methods as a profile whose seconds are decode steps.

    Raises InputError if a method was not traced.
    """
    meta = read_meta(traces)
    if missing := sorted(set(methods) - set(meta.methods)):
        raise InputError(f"--traces: {missing[0]} was not traced")
    costs = dict.fromkeys(methods, Costs(0.0, 0.0, np.zeros(1), np.ones(1)))
    rows = [row for row in read_rows(traces) if row["method"] in costs]
    items = {row["prompt_id"]: _item(row) for row in rows}
    return Profile(
        meta.model_copy(update={"methods": tuple(methods)}),
        tuple(prompt_of(item) for item in items.values()),
        tuple(traced_row(costs, _traced(row)) for row in rows),
    )


def _add(store: ProfileStore, rows: Sequence[dict[str, Any]], made: Any) -> None:
    def asked(row: dict[str, Any]) -> tuple[str, float]:
        return row["prompt_id"], row["temperature"]

    for _, members in groupby(sorted(rows, key=asked), asked):
        own = list(members)
        store.add_answers(_item(own[0]), [made(row) for row in own])


def _traced(row: dict[str, Any]) -> TracedAnswer:
    named = ("prompt_id", "method", "temperature", "answer", "kept", "looping")
    return TracedAnswer(prompt_tokens=len(row["prompt"]), **{name: row[name] for name in named})


def _checked(rows: Sequence[dict[str, Any]], temperature: float) -> list[EncodedPrompt]:
    """Choose CHECKS prompts over the range of lengths. Raises InputError if there is none."""
    own = {r["prompt_id"]: r for r in rows if r["temperature"] == temperature}
    if not own:
        raise InputError(f"--traces: nothing was traced at --temperature {temperature:g}")
    by_length = sorted(own.values(), key=lambda row: (len(row["prompt"]), row["prompt_id"]))
    places = {round(i * (len(by_length) - 1) / max(1, CHECKS - 1)) for i in range(CHECKS)}
    return [_item(by_length[place]) for place in sorted(places)]


def _item(row: dict[str, Any]) -> EncodedPrompt:
    message = {"role": "user", "content": row["text"]}
    return EncodedPrompt(Prompt(row["prompt_id"], row["domain"], (message,)), tuple(row["prompt"]))


def _over_traces(
    decoded: Sequence[ProfileRow], rows: Sequence[dict[str, Any]], temperature: float
) -> dict[str, float]:
    checked = {row.prompt_id for row in decoded}
    found = {}
    for method in dict.fromkeys(row.method for row in decoded):
        own = [row for row in decoded if row.method == method]
        real = sum(r.output_tokens for r in own) / sum(r.target_steps for r in own)
        traced = [
            (len(r["answer"]), expected_steps(r["kept"], len(r["answer"])))
            for r in rows
            if r["method"] == method
            and r["prompt_id"] in checked
            and r["temperature"] == temperature
        ]
        found[method] = real / (sum(t for t, _ in traced) / sum(s for _, s in traced))
    return found
