"""A configuration that serves a tiny bundle: routing table and encoder included."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fake_engine import STEP_SECONDS, TOKENS_PER_STEP, FakeEngine

from router.embed import Encoder
from router.prompt import NAMES
from router.table import save_table
from schemas import AppConfig, EncoderInfo, Live, MeasuredUnder, MethodSpec, RoutingTable
from workers.bundle import Bundle
from workers.loader import ENGINE_FOR_TESTS
from workers.methods import get_method

METHODS = ("naive", "draft_verify", "ngram")

TOPICS = (
    "Write a Python function that reverses a list.",
    "Tell me about the weather in the mountains in winter.",
)
"""One prompt per cluster of the small table."""


def small_table(
    encoder: EncoderInfo,
    centroids: np.ndarray,
    methods: Sequence[str] = METHODS,
    specs: Mapping[str, MethodSpec] | None = None,
    step_seconds: float = 0.004,
) -> RoutingTable:
    """A table in which draft_verify is the favourite everywhere, on 2,000 steps of evidence."""
    k, m = len(centroids), len(methods)
    chosen = {name: (specs or {}).get(name) or get_method(name) for name in methods}
    rates = np.asarray([TOKENS_PER_STEP.get(name, 2.0) for name in methods])
    steps = np.full((k, m, 3), 2000.0)
    favourite = "draft_verify" if "draft_verify" in methods else methods[0]
    return RoutingTable(
        fit_id="small",
        encoder=encoder,
        measured_under=MeasuredUnder(
            machine="test", device="cpu", dtype="float32", threads=1, bundle="tiny"
        ),
        methods=tuple(methods),
        settings_hashes={name: spec.settings_hash() for name, spec in chosen.items()},
        lossless={name: spec.lossless for name, spec in chosen.items()},
        default_method=methods[0],
        assignment=((favourite,) * 3,) * k,
        centroids=centroids,
        acceptance_tokens=steps * rates[None, :, None],
        acceptance_steps=steps,
        batch_grid=(1, 4, 8),
        context_grid=(64, 512),
        step_seconds=np.full((m, 3, 2), step_seconds) * np.asarray([1.0, 1.3, 1.6])[None, :, None],
        step_count=np.full((m, 3, 2), 100.0),
        prefill_seconds=np.tile([0.004, 1e-5], (m, 1)),
        output_tokens=np.full(k, 40.0),
        output_count=np.full(k, 100.0),
        speedup=np.tile(rates, (k, 1)),
        speedup_count=np.full((k, m), 100.0),
        live=Live.nothing(k, m),
    )


def foretelling(table: RoutingTable, method: str, feature: str, weight: float) -> RoutingTable:
    """The table with a regression by which a feature of a prompt's text says something of a
    method's acceptance, beyond its cluster's."""
    m = len(table.methods)
    weights = np.zeros((m, table.encoder.dimension + len(NAMES)))
    weights[table.methods.index(method), table.encoder.dimension + NAMES.index(feature)] = weight
    return table.model_copy(
        update={
            "features": NAMES,
            "regression": weights,
            "regression_range": np.tile([-3.0, 3.0], (m, 1)),
        }
    )


def service_config(
    folder: Path,
    bundle: Bundle,
    methods: Sequence[str | dict[str, Any]] = METHODS,
    step_seconds: float = 0.004,
    **settings: Any,
) -> AppConfig:
    """An AppConfig over `bundle` with a small routing table, all of it under `folder`.

    methods: their names, or how each is deployed. `settings` update the configuration's sections,
    e.g. `engine={"threads": 1}`.
    """
    deployed = [m if isinstance(m, dict) else {"name": m, "num_cpus": 0.5} for m in methods]
    names = [method["name"] for method in deployed]
    encoder = Encoder()
    centroids = encoder.embed(TOPICS)
    table = small_table(encoder.info, centroids, names, step_seconds=step_seconds)
    save_table(table, folder / "routing")
    body: dict[str, Any] = {
        "bundle": bundle.path,
        "methods": deployed,
        "engine": {"dtype": "float32", "kv_slots": 4096, "max_context": 512},
        "router": {"routing": folder / "routing", "exploration": 0.0},
        "feedback": {"state_uri": str(folder / "state")},
    }
    for section, values in settings.items():
        known = body.get(section)
        body[section] = {**known, **values} if isinstance(known, dict) else values
    return AppConfig.model_validate(body)


def preferring(method: str, methods: Iterable[str]) -> dict[str, float]:
    """Return weights with which a method is the preferred one, whatever is measured."""
    return {name: 10.0 if name == method else 0.01 for name in methods}


def fake_engines(step_seconds: float) -> dict[str, str]:
    """Return the environment in which processes load FakeEngine in the place of every engine."""
    folders = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    return {
        ENGINE_FOR_TESTS: f"{FakeEngine.__module__}:{FakeEngine.__name__}",
        STEP_SECONDS: str(step_seconds),
        "PYTHONPATH": os.pathsep.join(filter(None, folders)),
    }
