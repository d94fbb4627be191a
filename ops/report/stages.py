"""Where a step's time goes by batch size (Liu et al., section 5.1), of `bench stages`."""

from collections.abc import Mapping
from typing import Any

from ops.report.blocks import Chart, Section, Series, Table

STAGES = {"draft_ms": "drafting", "verify_ms": "verification", "sample_ms": "sampling"}
HOST = {"host_ms": "host"}


def stages_section(figures: Mapping[str, Any]) -> Section:
    """Return the section of a `bench stages` JSON."""
    found, parts = figures["stages"], STAGES | HOST
    rows = [
        [
            *(name, int(batch), own["step_ms"]),
            *(100.0 * own[part] / own["step_ms"] for part in parts),
            own["tokens_per_step"],
        ]
        for name, by_batch in found.items()
        for batch, own in by_batch.items()
    ]
    shares = [
        Chart(
            f"stages-{part.removesuffix('_ms')}",
            f"Share of a step: {label}",
            "Of decode steps that a whole batch shares.",
            "lines",
            "requests at once",
            f"{label}, share of the step",
            [
                Series(
                    name,
                    [int(batch) for batch in by_batch],
                    [own[part] / own["step_ms"] for own in by_batch.values()],
                    slot=slot,
                )
                for slot, (name, by_batch) in enumerate(found.items())
            ],
        )
        for part, label in STAGES.items()
    ]
    return Section(
        "stages",
        "Where a step's time goes",
        [
            "Verification is the target's forward, sampling what follows it until tokens are "
            "chosen, host what is left: laying out, scheduling, text. With all methods loaded the "
            f"process grew by {figures['loaded_mib']:,.0f} MiB, KV pool and buffers included."
        ],
        [
            Table(
                "stages-table",
                "Stages of a decode step",
                "Milliseconds of a step, and the share of each stage in per cent.",
                [
                    *("method", "requests", "step (ms)"),
                    *(f"{label}, %" for label in parts.values()),
                    "tokens a step",
                ],
                rows,
            ),
            *shares,
        ],
    )
