"""A routing table with evidence of further temperatures."""

import hashlib

import numpy as np
from numpy.typing import NDArray

from router.assign import AssignError, fit_id_of, with_favourites
from router.evidence import labels_of, profiled_acceptance
from router.profile import Profile, prompt_key
from schemas import TEMPERATURE_BANDS, RoutingTable


def with_other_bands(
    table: RoutingTable, profile: Profile, vectors: NDArray[np.float32]
) -> RoutingTable:
    """The table with the profile's acceptance in the temperature bands of which the table has no
    evidence; its clusters and times stay, and favourites are chosen anew.

    Acceptance does not depend on the machine, so the profile may be of another one, and with any
    number of requests in flight. vectors [n, d]: of the profile's prompts, in their order. Raises
    AssignError for a profile of another family or other settings, or of no band that is missing.
    """
    meta = profile.meta
    if meta.measured_under.bundle != table.measured_under.bundle:
        raise AssignError(
            f"the profile is of {meta.measured_under.bundle}, the table of "
            f"{table.measured_under.bundle}; profile the table's family"
        )
    for name in table.methods:
        if meta.settings_hashes.get(name) != table.settings_hashes[name]:
            raise AssignError(
                f"methods: {name} is not in the profile with the table's settings; profile it so"
            )
    label_of = labels_of(profile, vectors, table.centroids)
    added = profiled_acceptance(
        profile, table.methods, label_of, len(table.centroids), table.objective
    )
    missing = table.acceptance_steps.sum(axis=(0, 1)) == 0.0
    if not added[1][:, :, missing].any():
        raise AssignError(
            "the profile has no temperature that the table has no evidence of; "
            "profile with another --temperature"
        )
    tokens, counts = table.acceptance_tokens.copy(), table.acceptance_steps.copy()
    tokens[:, :, missing] = added[0][:, :, missing]
    counts[:, :, missing] = added[1][:, :, missing]
    added_id = fit_id_of(profile, table.centroids, table.encoder, table.methods)
    digest = hashlib.sha256(f"{table.fit_id} {added_id}".encode())
    keys = {*table.provenance.get("prompts", ()), *(prompt_key(p.text) for p in profile.prompts)}
    bands = [band for band, none in zip(TEMPERATURE_BANDS, missing, strict=True) if none]
    more = {"temperature_bands": bands, "profile": meta.provenance}
    changed = table.model_copy(
        update={
            "fit_id": digest.hexdigest()[:12],
            "acceptance_tokens": tokens,
            "acceptance_steps": counts,
            "provenance": table.provenance | {"prompts": sorted(keys), "other_bands": more},
        }
    )
    return with_favourites(changed, None)
