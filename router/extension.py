"""A routing table with methods that were measured later, beside its plain decoding."""

import hashlib
from collections.abc import Sequence

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
    """The table with those methods of a profile that it lacks, or those of them named; the profile
    has plain decoding too, by which its seconds are related to the table's.

    Clusters stay, and what is known of the other methods. A new method's acceptance is what the
    profile's prompts, with the vectors [n, d], say of their clusters, and of single prompts where
    the table has a regression. Its seconds are the table's
    for plain decoding, times what the profile says that the method takes longer: the profile may
    come from a machine of another speed, though not from one where drafts cost otherwise.
    Favourites are chosen anew; the fit id is new. Raises AssignError where there is nothing to add,
    or nothing to relate it to.
    """
    meta, plain = profile.meta, profile.baseline
    names = [name for name in methods or meta.methods if name not in table.methods]
    if not names:
        raise AssignError(f"methods: the table has {', '.join(methods or meta.methods)} already")
    if unknown := [name for name in names if name not in meta.methods]:
        raise AssignError(f"methods: {', '.join(unknown)} not in the profile: measure it")
    if plain not in table.methods or plain not in meta.methods:
        raise AssignError(f"profile: has to have {plain}, as the table, to relate seconds by")
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
    digest = hashlib.sha256(table.fit_id.encode())
    for part in (meta, *profile.rows, *profile.steps):
        digest.update(part.model_dump_json().encode())
    extension = {
        "methods": names,
        "prompts": len(profile.prompts),
        "measured_under": meta.measured_under.model_dump(mode="json"),
    }
    earlier = table.provenance.get("extended_by", [])
    made = table.model_copy(
        update={
            **arrays,
            "fit_id": digest.hexdigest()[:12],
            "methods": (*table.methods, *names),
            "settings_hashes": table.settings_hashes | {n: meta.settings_hashes[n] for n in names},
            "lossless": table.lossless | {n: meta.lossless[n] for n in names},
            "provenance": table.provenance | {"extended_by": [*earlier, extension]},
        }
    )
    return with_favourites(made, None)


def _step_seconds(
    table: RoutingTable, profile: Profile, plain: str, names: Sequence[str]
) -> tuple[Floats, Floats]:
    """Seconds and counts [new, B, C] on the table's grid."""
    every = [plain, *names]
    samples = step_samples(profile, every, table.batch_grid)
    seconds, counts = steps.grid(samples, len(every), table.batch_grid, table.context_grid)
    at = table.methods.index(plain)
    known = table.step_seconds[at] * table.live_step_ratio[at]
    return known * seconds[1:] / seconds[0], counts[1:]


def _prefill(table: RoutingTable, profile: Profile, plain: str, names: Sequence[str]) -> Floats:
    """Lines [new, 2]: plain decoding's in the table, as much steeper as in the profile."""
    lines = prefill_lines(profile, [plain, *names])
    usual = float(np.mean([cell.prompt_tokens for cell in profile.cells.values()]))
    seconds = lines @ np.array([1.0, usual])
    at = table.methods.index(plain)
    known = table.prefill_seconds[at] * table.live_prefill_ratio[at]
    return np.outer(seconds[1:] / seconds[0], known)
