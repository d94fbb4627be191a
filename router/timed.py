"""A profile's answers in the time that a routing table predicts.

What was accepted depends on prompts, and steps' seconds on the machine: answers profiled where
seconds are of no use, beside other work or on another machine, are as good as any once a table
that was measured in quiet says what they take.
"""

from dataclasses import replace

from router import predict
from router.profile import Profile, ProfileError
from router.speedup import PLAIN_METHODS
from schemas import RoutingTable
from schemas.profile import ProfileRow, StepRow


def timed_by(table: RoutingTable, profile: Profile) -> Profile:
    """The table's methods in the profile, every second as the table predicts it of an answer that
    has a replica to itself; the step-time grid is what the table measured.

    Raises ProfileError for a profile of another bundle, other settings, or of several requests in
    flight, and for a table without a plain method.
    """
    meta = profile.meta
    if meta.measured_under.bundle != table.measured_under.bundle:
        raise ProfileError(
            f"the profile is of {meta.measured_under.bundle}, the table of "
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
            "measured_under": table.measured_under,
            "provenance": meta.provenance | {"timed_by": table.fit_id},
        }
    )
    rows = tuple(_timed(table, row) for row in profile.rows if row.method in table.methods)
    return replace(profile, meta=changed, rows=rows, steps=_grid(table))


def _timed(table: RoutingTable, row: ProfileRow) -> ProfileRow:
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
