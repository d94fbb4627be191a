"""Measure vLLM engines for `bench gpu --vllm`: several methods in one, and each method alone."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.progress import Progress

from ops.bench.gpu_runs import Plan, device_name, exactness, settings, speeds
from ops.harness.decoding import encode
from ops.harness.settings import Setup, device_of, with_dtype
from schemas import MethodSpec
from workers.bundle import load_bundle
from workers.portfolio import decodable, method_of

RUNNER = "VLLM_USE_V2_MODEL_RUNNER"
PLAIN = "vllm_naive"
METHODS = (*(PLAIN, "vllm_ngram", "vllm_suffix", "vllm_medusa", "vllm_eagle3", "vllm_adaptive"),)
ALONE = ("none", "ngram", "eagle", "eagle3", "draft_model")
"""Drafters whose methods are measured in engines of their own, as vLLM offers them."""


@dataclass(frozen=True)
class Group:
    """Engines that are loaded together. runner: a value of vLLM's variable, None: its choice."""

    name: str
    setup: Setup
    runner: str | None


def default_methods(folder: Path) -> str:
    """Return the methods that the bundle and the installed packages have the parts for."""
    bundle, suffix = load_bundle(folder), find_spec("arctic_inference") is not None
    names = [name for name in METHODS if suffix or name != "vllm_suffix"]
    return ",".join(name for name in names if decodable(method_of(name, bundle), bundle))


async def measure_vllm(plan: Plan, bar: Progress) -> dict[str, Any]:
    """Return the figures of every group; docs/measuring.md says what they mean.

    A group that fails has its error instead, and the others are measured all the same.
    """
    bundle = load_bundle(plan.setup.bundle)
    setup = with_dtype(plan.setup)
    encoded, skipped = encode(bundle, plan.prompts, setup.engine.max_context - plan.max_tokens)
    found: dict[str, Any] = {}
    for group in _groups(setup):
        began, own = time.perf_counter(), replace(plan, setup=group.setup)
        task = bar.add_task(group.name, total=None)
        figures: dict[str, Any] = {}
        try:
            with _runner(group.runner):
                if group.setup.shared:
                    exact = encoded[: plan.exact]
                    figures["exact"] = await exactness(_beside(own), bundle, exact, _nothing)
                step_ms, speed, _ = await speeds(own, bundle, encoded, _nothing)
                figures |= {"step_ms": step_ms, "methods": speed}
        except Exception as error:  # vLLM raises anything; the others tell what works
            figures["error"] = f"{type(error).__name__}: {error}"
        found[group.name] = figures | {"seconds": time.perf_counter() - began}
        bar.remove_task(task)
    return {
        "device": device_name(device_of(setup.engine)),
        "groups": found,
        "settings": settings(plan, setup, bundle) | {"skipped_too_long": skipped},
    }


def _groups(setup: Setup) -> Iterator[Group]:
    """All methods in the first runner; each alone in vLLM's choice,
    in turn, since each takes its share of the GPU's memory."""
    yield Group("shared, first runner", replace(setup, shared=True), "0")
    for spec in setup.methods:
        if spec.drafter in ALONE:
            yield Group(f"vLLM's {spec.drafter}", _only(setup, spec), None)


def _only(setup: Setup, *specs: MethodSpec, shared: bool = False) -> Setup:
    return replace(setup, methods=specs, shared=shared)


def _beside(plan: Plan) -> Plan:
    """Leave half of the GPU's memory to Hugging Face's model, and start without compilation."""
    engine = plan.setup.engine
    changes = {"gpu_memory_utilization": 0.5, "enforce_eager": True}
    vllm = engine.vllm.model_copy(update=changes)
    return replace(plan, setup=replace(plan.setup, engine=engine.model_copy(update={"vllm": vllm})))


@contextmanager
def _runner(value: str | None) -> Iterator[None]:
    """Set vLLM's variable for engines that are loaded meanwhile."""
    before: Mapping[str, str] = {k: v for k, v in os.environ.items() if k == RUNNER}
    os.environ.pop(RUNNER, None)
    if value is not None:
        os.environ[RUNNER] = value
    try:
        yield
    finally:
        os.environ.pop(RUNNER, None)
        os.environ.update(before)


def _nothing(_steps: int = 1) -> None:
    """Advance no progress bar: how long an engine takes to start is unknown."""
