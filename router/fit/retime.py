"""New step times for a routing table's methods, and a profile in a table's times."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from router import predict
from router.fit.profile import Profile, ProfileError
from schemas import RoutingTable
from schemas.method import PLAIN_METHODS
from schemas.profile import ProfileRow, StepRow

Floats = NDArray[np.float64]


def with_step_times(
    table: RoutingTable,
    methods: Sequence[str],
    seconds: Floats,
    counts: Floats,
    batch_ratio: float,
    prefill: Floats,
) -> RoutingTable:
    """Return the table with new times of some methods, without what it learned about the old ones.

    seconds, counts: [n, B, C] on the table's grids. batch_ratio: ratio in a full batch to start
    from. prefill: [n, 2] a constant and seconds per prompt token.
    """
    at = [table.methods.index(name) for name in methods]
    changes = {"step_seconds": seconds, "step_count": counts, "prefill_seconds": prefill}
    forgotten = {"step_ratio": 1.0, "context_slope": 0.0, "step_weight": 0.0, "prefill_ratio": 1.0}
    forgotten["batch_ratio"] = batch_ratio
    arrays = {name: np.copy(getattr(table, name)) for name in changes}
    for name, values in changes.items():
        arrays[name][at] = values
    live = {name: np.copy(getattr(table.live, name)) for name in forgotten}
    for name, value in forgotten.items():
        live[name][at] = value
    return table.with_live(**live).model_copy(update=arrays)


def timed_by(table: RoutingTable, profile: Profile) -> Profile:
    """Return a profile's answers of the table's methods in the seconds that the table predicts.

    What was accepted depends on prompts, and step time on the machine. So answers profiled next to
    other work, or on another machine, can be used with a table measured on an idle one. Seconds are
    those of an answer that is alone on its replica; the step-time grid is the table's.

    A retrained head may be in the profile's bundle: its steps take what the earlier one's took.

    Raises ProfileError for a profile of another family, of other settings or of concurrent
    requests, and for a table without a plain method.
    """
    meta = profile.meta
    bundle = meta.measured_under.bundle
    if _family(bundle) != _family(table.measured_under.bundle):
        raise ProfileError(
            f"the profile is of {bundle}, the table of "
            f"{table.measured_under.bundle}; profile the table's family"
        )
    if meta.concurrency > 1:
        raise ProfileError(
            f"concurrency: answers were decoded {meta.concurrency} at a time; "
            "profile with --concurrency 1"
        )
    if not {*PLAIN_METHODS} & {*table.methods}:
        raise ProfileError(
            f"the table has no plain method for speedups to be over: {' or '.join(PLAIN_METHODS)}"
        )
    for name in table.methods:
        if meta.settings_hashes.get(name) != table.settings_hashes[name]:
            raise ProfileError(
                f"methods: {name} is not in the profile with the table's settings; profile it so"
            )
    changed = meta.model_copy(
        update={
            "methods": table.methods,
            "settings_hashes": table.settings_hashes,
            "lossless": table.lossless,
            "measured_under": table.measured_under.model_copy(update={"bundle": bundle}),
            "provenance": meta.provenance | {"timed_by": table.fit_id},
        }
    )
    rows = tuple(_timed_row(table, row) for row in profile.rows if row.method in table.methods)
    return replace(profile, meta=changed, rows=rows, steps=_grid(table))


def _timed_row(table: RoutingTable, row: ProfileRow) -> ProfileRow:
    m = table.methods.index(row.method)
    prefill = predict.prefill_seconds(table, m, row.prompt_tokens)
    step = predict.step_seconds(table, m, 1.0, row.prompt_tokens + row.output_tokens / 2.0)
    decode = max(0, row.target_steps - 1) * step
    return row.model_copy(
        update={
            "prefill_seconds": prefill,
            "decode_seconds": decode,
            "seconds": max(prefill + decode, 1e-9),
        }
    )


def _grid(table: RoutingTable) -> tuple[StepRow, ...]:
    ratios = predict.step_ratios(table)
    return tuple(
        StepRow(
            method=name,
            batch=batch,
            context=context,
            seconds=float(table.step_seconds[m, b, c] * ratios[m, b]),
            count=int(table.step_count[m, b, c]),
        )
        for m, name in enumerate(table.methods)
        for b, batch in enumerate(table.batch_grid)
        for c, context in enumerate(table.context_grid)
        if table.step_count[m, b, c] >= 1.0
    )


def _family(bundle: str) -> str:
    """Return the name of a bundle without the hash of its files."""
    return bundle.partition("@")[0]
