"""Routing tables made from another table: with further methods, or with what was learned live."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from router import evidence, predict
from router.favourites import with_favourites
from router.fit import steps
from router.fit.acceptance import labels_of, profiled_acceptance
from router.fit.assign import AssignError, paired_speedups, prefill_lines, step_samples
from router.fit.profile import Profile
from router.fit.regression import Correction
from router.fit.retime import with_step_times
from router.table import LIVE_METHOD_AXIS, METHOD_AXIS, restrict
from schemas import Live, RoutingTable

Floats = NDArray[np.float64]


def extended(
    table: RoutingTable,
    profile: Profile,
    vectors: NDArray[np.float32],
    methods: Sequence[str] | None = None,
    retrained: Sequence[str] = (),
) -> RoutingTable:
    """Return the table with further methods from a profile, and new times of methods it has.

    methods: default: those that the table lacks. Methods named that the table has get new times.
    retrained: methods of the table whose weights changed since. They are added anew, nothing that
    was known of them stays, and the table is of the profile's bundle from then on.
    Clusters and everything known about other methods stay. A new method's acceptance comes from the
    profile's prompts with the vectors [n, d], and so does its regression if the table has one. Its
    seconds are the table's for plain decoding times the profile's ratio of the method to plain
    decoding: the profile may come from a machine of another speed, but not from one where drafts
    have another relative cost. Favourites are chosen anew; the fit id is new.

    Raises AssignError when there is nothing to add, or no plain decoding to relate seconds to.
    """
    meta, plain = profile.meta, profile.baseline
    if unknown := [name for name in (*(methods or ()), *retrained) if name not in meta.methods]:
        raise AssignError(f"methods: {', '.join(unknown)} not in the profile: measure it")
    if plain not in table.methods or plain not in meta.methods or plain in retrained:
        raise AssignError(f"profile: has to have {plain}, as the table, to relate seconds by")
    if retrained:
        others = [name for name in table.methods if name not in retrained]
        under = table.measured_under.model_copy(update={"bundle": meta.measured_under.bundle})
        table = restrict(table, others).model_copy(update={"measured_under": under})
        methods = [*(methods or ()), *(name for name in retrained if name not in (methods or ()))]
    names = [name for name in methods or meta.methods if name not in table.methods]
    timed = [name for name in methods or () if name in table.methods and name != plain]
    if not names and not timed:
        raise AssignError(
            f"methods: the table has {', '.join(methods or meta.methods)} already; "
            "those that are named get new seconds"
        )
    if other := [n for n in timed if table.settings_hashes[n] != meta.settings_hashes[n]]:
        raise AssignError(
            f"methods: {', '.join(other)} was profiled with other settings than the table's"
        )
    ratio = float(table.live.batch_ratio[table.methods.index(plain)])
    if timed:
        times = _step_seconds(table, profile, plain, timed)
        prefill = _prefill(table, profile, plain, timed)
        table = with_step_times(table, timed, *times, ratio, prefill)
    if names:
        table = _with_methods(table, profile, vectors, names, ratio)
    return with_favourites(_renamed(table, profile, names, timed), None)


def _with_methods(
    table: RoutingTable,
    profile: Profile,
    vectors: NDArray[np.float32],
    names: Sequence[str],
    batch_ratio: float,
) -> RoutingTable:
    """Return the table with new methods; batch_ratio: their ratio in a full batch to start from."""
    meta, plain = profile.meta, profile.baseline
    label_of = labels_of(profile, vectors, table.centroids)
    k, new = len(table.centroids), len(names)
    correction = Correction.none(new, k)
    if table.features:
        correction = Correction.of(profile, vectors, names, label_of, k)
    accepted = profiled_acceptance(
        *(profile, names, label_of, table.objective, table.output_tokens), correction.deviations
    )
    seconds, counts = _step_seconds(table, profile, plain, names)
    speedup, speedup_count = paired_speedups(profile, names, label_of, k)
    added = {
        "acceptance_tokens": accepted[0],
        "acceptance_steps": accepted[1],
        "step_seconds": seconds,
        "step_count": counts,
        "prefill_seconds": _prefill(table, profile, plain, names),
        "speedup": speedup,
        "speedup_count": speedup_count,
        "regression": correction.weights,
        "regression_range": correction.range,
        "regression_mean": correction.mean,
    }
    fresh = dict(Live.nothing(k, new)) | {"batch_ratio": np.ones(new) * batch_ratio}
    live = _joined(table.live, fresh, LIVE_METHOD_AXIS)
    return table.with_live(**live).model_copy(
        update={
            **_joined(table, added, METHOD_AXIS),
            "methods": (*table.methods, *names),
            "settings_hashes": table.settings_hashes | {n: meta.settings_hashes[n] for n in names},
            "lossless": table.lossless | {n: meta.lossless[n] for n in names},
        }
    )


def _joined(
    record: RoutingTable | Live, added: Mapping[str, Floats], axes: Mapping[str, int]
) -> dict[str, Floats]:
    """Return a record's arrays with those of further methods behind."""
    return {n: np.concatenate([getattr(record, n), added[n]], axis) for n, axis in axes.items()}


def _renamed(
    table: RoutingTable, profile: Profile, names: Sequence[str], timed: Sequence[str]
) -> RoutingTable:
    """Return the table under a fit id of its own, with the extension in its provenance."""
    digest = hashlib.sha256(f"{table.fit_id} {[*names]} {[*timed]}".encode())
    for part in (profile.meta, *profile.rows, *profile.steps):
        digest.update(part.model_dump_json().encode())
    extension = {
        "methods": list(names),
        "timed": list(timed),
        "prompts": len(profile.prompts),
        "measured_under": profile.meta.measured_under.model_dump(mode="json"),
    }
    earlier = table.provenance.get("extended_by", [])
    return table.model_copy(
        update={
            "fit_id": digest.hexdigest()[:12],
            "provenance": table.provenance | {"extended_by": [*earlier, extension]},
        }
    )


def _step_seconds(
    table: RoutingTable, profile: Profile, plain: str, names: Sequence[str]
) -> tuple[Floats, Floats]:
    """Return seconds and counts [n, B, C] on the table's grid.

    Batch sizes that the grid lacks are left out; they would count as the nearest one on it.
    """
    every = [plain, *names]
    known = [row for row in profile.steps if row.batch in table.batch_grid]
    samples = step_samples(replace(profile, steps=tuple(known)), every, table.batch_grid)
    seconds, counts = steps.grid(samples, len(every), table.batch_grid, table.context_grid)
    at = table.methods.index(plain)
    plainly = table.step_seconds[at] * table.live.step_ratio[at]
    return plainly * seconds[1:] / seconds[0], counts[1:]


def _prefill(table: RoutingTable, profile: Profile, plain: str, names: Sequence[str]) -> Floats:
    """Return prefill lines [n, 2]: plain decoding's in the table times the profile's ratio."""
    lines = prefill_lines(profile, [plain, *names])
    usual = float(np.mean([cell.prompt_tokens for cell in profile.cells.values()]))
    seconds = lines @ np.array([1.0, usual])
    at = table.methods.index(plain)
    known = table.prefill_seconds[at] * table.live.prefill_ratio[at]
    return np.outer(seconds[1:] / seconds[0], known)


def promoted(table: RoutingTable) -> RoutingTable:
    """Return a table, with a fit of its own, whose profile is all that a served table knows.

    Its cells count offline and live evidence, and its seconds are those measured while serving.
    The share of cached prompts belongs to the day's traffic and is left out.
    """
    tokens, steps_taken = evidence.counted(table)
    clusters = range(len(table.assignment))
    digest = hashlib.sha256(f"{table.fit_id}:{table.version}".encode() + tokens.tobytes())
    origin = {
        "fit_id": table.fit_id,
        "version": table.version,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    fresh = Live.nothing(len(clusters), len(table.methods))
    return table.model_copy(
        update={
            # The new seconds hold for one sequence; full batches still differ from them.
            "live": fresh.model_copy(update={"batch_ratio": table.live.batch_ratio}),
            "fit_id": digest.hexdigest()[:12],
            "version": 0,
            "acceptance_tokens": tokens,
            "acceptance_steps": steps_taken,
            "output_tokens": np.asarray([predict.expected_output(table, k) for k in clusters]),
            "output_count": table.output_count + table.live.output[:, 1],
            "step_seconds": table.step_seconds * table.live.step_ratio[:, None, None],
            "prefill_seconds": table.prefill_seconds * table.live.prefill_ratio[:, None],
            "provenance": table.provenance | {"promoted_from": origin},
        }
    )
