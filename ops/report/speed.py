"""How even a method's speed is, what larger batches leave of it, and what tokens cost."""

from collections.abc import Mapping, Sequence
from typing import Any

from ops.report.blocks import Chart, Section, Series, Table
from ops.report.results import Results
from router.fit.profile import Profile
from router.fit.speedup import speedup
from schemas.profile import StepRow

SECONDS_AN_HOUR = 3600.0
MILLION = 1e6


def consistency_table(results: Results) -> Table:
    """The variance of per-prompt speed that the paper's section IV.A.1 speaks of."""
    rows = [
        [name, r.tokens_per_s, r.deviation, r.deviation / r.tokens_per_s, r.least, r.most, r.slower]
        for name, r in results.rates.items()
    ]
    return Table(
        "consistency",
        "How even the speed is",
        "Tokens/s over prompts: mean, standard deviation, their ratio, percentiles; and the share "
        f"of prompts on which a method is slower than {results.baseline}.",
        ["method", "tokens/s", "deviation", "ratio", "5th", "95th", "slower"],
        rows,
    )


def throughput(steps: Sequence[StepRow], context: int) -> dict[str, dict[int, float]]:
    """Return tokens/s of a whole batch at a context length, by method and batch; no prefills."""
    found: dict[str, dict[int, float]] = {}
    for row in steps:
        if row.context == context and row.tokens is not None:
            rate = row.batch * row.tokens / row.seconds
            found.setdefault(row.method, {})[row.batch] = rate
    return found


def answers_tokens(profile: Profile, temperature: float) -> dict[str, float] | None:
    """By method the tokens of a decode step of all of a retimed profile's answers at a temperature,
    or None where the profile's own steps were measured.

    A routing table's steps are those of this acceptance at every batch size: what larger batches
    emit less, its seconds are longer by (`router.fit.assign.step_samples`).
    """
    if "timed_by" not in profile.meta.provenance:
        return None
    emitted: dict[str, list[tuple[float, float]]] = {}
    for row in profile.rows:
        if row.temperature == temperature and row.target_steps > 1.0:
            own = (row.output_tokens - 1.0, row.target_steps - 1.0)
            emitted.setdefault(row.method, []).append(own)
    return {
        name: sum(tokens for tokens, _ in own) / sum(steps for _, steps in own)
        for name, own in emitted.items()
    }


def cost_per_million(tokens_per_s: float, price_per_hour: float) -> float:
    """Return the cost of a million output tokens on a machine that is always busy."""
    return price_per_hour / SECONDS_AN_HOUR / tokens_per_s * MILLION


def speed_section(
    results: Results,
    steps: Sequence[StepRow],
    price: float | None,
    answered: Mapping[str, float] | None = None,
) -> Section:
    """price: of the measured machine, in a currency an hour. answered: by method tokens of a step,
    where the steps are a routing table's, which counts none (`answers_tokens`)."""
    blocks: list[Table | Chart] = [consistency_table(results)]
    if answered is not None:
        steps = [row.model_copy(update={"tokens": answered.get(row.method)}) for row in steps]
    contexts = sorted({row.context for row in steps if row.tokens is not None})
    rates = throughput(steps, contexts[0]) if contexts else {}
    text = _missing(results, bool(steps), rates, price)
    if rates:
        blocks.append(_sweep(rates, results.baseline, contexts[0], answered is not None))
        if price is not None:
            blocks.append(_costs(rates, price))
            text.append(
                f"Costs are those of a machine at {price:g} an hour that always decodes; idle "
                "hours and prefills come on top."
            )
    return Section("speed", "Speed: consistency, batches and cost", text, blocks)


def _missing(
    results: Results, grid: bool, rates: Mapping[str, Any], price: float | None
) -> list[str]:
    """What cannot be drawn by batch size, and why."""
    absent = [name for name in results.rates if name not in rates]
    if not absent:
        return []
    what = "speedup by batch size" + (" and cost" if price is not None else "")
    of = f" of {', '.join(absent)}" if rates else ""
    why = "says nothing of the tokens of a step" if grid else "is empty"
    return [
        f"There is no {what}{of}: the profile's step grid {why}. "
        "Profile anew, or retime the answers by a routing table (`specadapt retime`)."
    ]


def _sweep(
    rates: Mapping[str, Mapping[int, float]], baseline: str, context: int, retimed: bool
) -> Chart:
    measured = "steps and tokens are the profile's step grid"
    of_table = "steps are the routing table's, tokens of a step those of all answers"
    plain = rates.get(baseline, {})
    series = [
        Series(
            name,
            sorted(own.keys() & plain.keys()),
            [speedup(plain[batch], own[batch]) for batch in sorted(own.keys() & plain.keys())],
            slot=slot,
        )
        for slot, (name, own) in enumerate(rates.items())
        if name != baseline
    ]
    return Chart(
        "batch-sweep",
        "Speedup by batch size",
        f"Tokens/s of a whole batch over {baseline}'s of the same size, at about {context} tokens "
        f"of context, prefills left out; {of_table if retimed else measured}.",
        "lines",
        "sequences in a batch",
        f"speedup over {baseline}",
        series,
        {baseline: 1.0},
    )


def _costs(rates: Mapping[str, Mapping[int, float]], price: float) -> Table:
    batches = sorted({batch for own in rates.values() for batch in own})
    rows: list[list[Any]] = [
        [name, *(cost_per_million(own[b], price) if b in own else None for b in batches)]
        for name, own in rates.items()
    ]
    best = frozenset(
        (min((row[column], at) for at, row in enumerate(rows) if row[column])[1], column)
        for column in range(1, len(batches) + 1)
    )
    return Table(
        "cost",
        "Cost of a million output tokens",
        f"At {price:g} an hour, by sequences in a batch; the cheapest method is bold.",
        ["method", *(f"batch {batch}" for batch in batches)],
        rows,
        best,
    )
