"""A routing table with methods that were measured later, beside its plain decoding."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from router import steps
from router.assign import AssignError, paired_speedups, prefill_lines, step_samples, with_favourites
from router.correction import Correction
from router.evidence import labels_of, profiled_acceptance
from router.profile import Profile
from schemas import RoutingTable

Floats = NDArray[np.float64]


def extended(
    table: RoutingTable,
    profile: Profile,
    vectors: NDArray[np.float32],
    methods: Sequence[str] | None = None,
) -> RoutingTable:
    """The table with those methods of a profile that it lacks, or those named; the profile has
    plain decoding too, by which its seconds are related to the table's.

    Clusters stay, and what is known of the other methods, except that those named which the table
    has already get new seconds. A new method's acceptance is what the profile's prompts, with the
    vectors [n, d], say of their clusters, and of single prompts where the table has a regression.
    Seconds are the table's for plain decoding, times what the profile says that the method takes
    longer: the profile may come from a machine of another speed, though not from one where drafts
    cost otherwise. Favourites are chosen anew; the fit id is new. Raises AssignError where there is
    nothing to add, or nothing to relate it to.
    """
    meta, plain = profile.meta, profile.baseline
    if unknown := [name for name in methods or () if name not in meta.methods]:
        raise AssignError(f"methods: {', '.join(unknown)} not in the profile: measure it")
    if plain not in table.methods or plain not in meta.methods:
        raise AssignError(f"profile: has to have {plain}, as the table, to relate seconds by")
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
    table = _timed(table, profile, plain, timed)
    if not names:
        return with_favourites(_made(table, profile, names, timed), None)
    label_of = labels_of(profile, vectors, table.centroids)
    k = len(table.centroids)
    new = len(names)
    correction = Correction.none(new, k)
    if table.features:
        correction = Correction.of(profile, vectors, names, label_of, k)
    accepted = profiled_acceptance(
        *(profile, names, label_of, table.objective, table.output_tokens), correction.deviations
    )
    seconds, counts = _step_seconds(table, profile, plain, names)
    speedup, speedup_count = paired_speedups(profile, names, label_of, k)
    ones, none = np.ones(new), np.zeros(new)
    added: dict[str, tuple[int, Floats]] = {
        "acceptance_tokens": (1, accepted[0]),
        "acceptance_steps": (1, accepted[1]),
        "live_tokens": (1, np.zeros_like(accepted[0])),
        "live_steps": (1, np.zeros_like(accepted[1])),
        "step_seconds": (0, seconds),
        "step_count": (0, counts),
        "prefill_seconds": (0, _prefill(table, profile, plain, names)),
        "live_step_ratio": (0, ones),
        "live_batch_ratio": (0, ones * table.live_batch_ratio[table.methods.index(plain)]),
        "live_step_weight": (0, none),
        "live_prefill_ratio": (0, ones),
        "live_cached_share": (0, none),
        "speedup": (1, speedup),
        "speedup_count": (1, speedup_count),
        "regression": (0, correction.weights),
        "regression_range": (0, correction.range),
        "regression_mean": (1, correction.mean),
    }
    arrays = {
        name: np.concatenate([getattr(table, name), more], axis)
        for name, (axis, more) in added.items()
    }
    made = table.model_copy(
        update={
            **arrays,
            "methods": (*table.methods, *names),
            "settings_hashes": table.settings_hashes | {n: meta.settings_hashes[n] for n in names},
            "lossless": table.lossless | {n: meta.lossless[n] for n in names},
        }
    )
    return with_favourites(_made(made, profile, names, timed), None)


def _timed(table: RoutingTable, profile: Profile, plain: str, names: Sequence[str]) -> RoutingTable:
    """The table with new seconds of methods that it has; what was learned of them is no more."""
    if not names:
        return table
    at = [table.methods.index(name) for name in names]
    seconds, counts = _step_seconds(table, profile, plain, names)
    fresh: dict[str, Floats | float] = {
        "step_seconds": seconds,
        "step_count": counts,
        "prefill_seconds": _prefill(table, profile, plain, names),
        "live_step_ratio": 1.0,
        "live_batch_ratio": float(table.live_batch_ratio[table.methods.index(plain)]),
        "live_step_weight": 0.0,
        "live_prefill_ratio": 1.0,
    }
    arrays = {name: np.copy(getattr(table, name)) for name in fresh}
    for name, values in fresh.items():
        arrays[name][at] = values
    return table.model_copy(update=arrays)


def _made(
    table: RoutingTable, profile: Profile, names: Sequence[str], timed: Sequence[str]
) -> RoutingTable:
    """The table under a fit id of its own, which says what it was extended by."""
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
    """Seconds and counts [new, B, C] on the table's grid. Batches that it does not have would be
    counted as the nearest one that it has."""
    every = [plain, *names]
    known = [row for row in profile.steps if row.batch in table.batch_grid]
    samples = step_samples(replace(profile, steps=tuple(known)), every, table.batch_grid)
    seconds, counts = steps.grid(samples, len(every), table.batch_grid, table.context_grid)
    at = table.methods.index(plain)
    plainly = table.step_seconds[at] * table.live_step_ratio[at]
    return plainly * seconds[1:] / seconds[0], counts[1:]


def _prefill(table: RoutingTable, profile: Profile, plain: str, names: Sequence[str]) -> Floats:
    """Lines [new, 2]: plain decoding's in the table, as much steeper as in the profile."""
    lines = prefill_lines(profile, [plain, *names])
    usual = float(np.mean([cell.prompt_tokens for cell in profile.cells.values()]))
    seconds = lines @ np.array([1.0, usual])
    at = table.methods.index(plain)
    known = table.prefill_seconds[at] * table.live_prefill_ratio[at]
    return np.outer(seconds[1:] / seconds[0], known)
