"""How even a method's speed is, what larger batches leave of it, and what tokens cost."""

from collections.abc import Mapping, Sequence
from typing import Any

from ops.report.blocks import Chart, Section, Series, Table
from ops.report.results import Results
from router.speedup import speedup
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
    """By method and batch tokens/s of a whole batch that decodes at a context length: its
    sequences' tokens of a step over the step's seconds. Prefills do not count."""
    found: dict[str, dict[int, float]] = {}
    for row in steps:
        if row.context == context and row.tokens is not None:
            rate = row.batch * row.tokens / row.seconds
            found.setdefault(row.method, {})[row.batch] = rate
    return found


def cost_per_million(tokens_per_s: float, price_per_hour: float) -> float:
    """Of a million output tokens, in the price's currency, on a machine that is always busy."""
    return price_per_hour / SECONDS_AN_HOUR / tokens_per_s * MILLION


def speed_section(results: Results, steps: Sequence[StepRow], price: float | None) -> Section:
    """price: of the measured machine, in a currency an hour."""
    blocks: list[Table | Chart] = [consistency_table(results)]
    text = []
    contexts = sorted({row.context for row in steps if row.tokens is not None})
    if contexts:
        rates = throughput(steps, contexts[0])
        blocks += [_sweep(rates, results.baseline, contexts[0])]
        if price is not None:
            blocks.append(_costs(rates, price))
            text.append(
                f"Costs are those of a machine at {price:g} an hour that always decodes; idle "
                "hours and prefills come on top."
            )
    return Section("speed", "Speed: consistency, batches and cost", text, blocks)


def _sweep(rates: Mapping[str, Mapping[int, float]], baseline: str, context: int) -> Chart:
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
        "of context, prefills left out; steps and tokens are the profile's step grid.",
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
