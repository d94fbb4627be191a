"""What people read of `bench routed`."""

from collections.abc import Iterable
from typing import Any

from rich.console import Group

from ops.bench.routed.figures import ROUTED
from ops.harness.output import cell, table

PER_ARM = {"tokens_per_s": "tok/s", "decode_tokens_per_s": "after the first", "mat": "MAT"}
RATIOS = {
    "routed_over_best_single": "routed over best single",
    "routed_over_oracle": "routed over oracle",
    "oracle_over_best_single": "oracle over best single",
}


def tables_of(figures: dict[str, Any]) -> Iterable[Group | str]:
    """Yield tables: a line per arm, ratios with intervals, a line per domain, exclusions."""
    routed, chosen = figures[ROUTED], figures["chosen"]
    rows = [[ROUTED, *map(routed.get, PER_ARM), None]]
    rows += [
        [name, *map(method.get, PER_ARM), chosen.get(name, 0)]
        for name, method in figures["methods"].items()
    ]
    if figures["oracle"] is not None:
        rows.append(["oracle", figures["oracle"]["tokens_per_s"], None, None, None])
    yield table("At the client", ["arm", *PER_ARM.values(), "chosen"], rows)
    calm = figures["without_looping"]
    yield table(
        f"The best single method is {figures['best_single']['name']}",
        ["ratio", "value", "95% interval", "without loops"],
        [
            [title, figures[key], _interval(figures, key), calm[key]]
            for key, title in RATIOS.items()
        ],
    )
    yield table(
        "By domain",
        ["domain", "prompts", *RATIOS.values()],
        [[d, some["counted"], *map(some.get, RATIOS)] for d, some in figures["by_domain"].items()],
    )
    reasons = ", ".join(f"{reason} {count}" for reason, count in figures["reasons"].items())
    yield f"routed by reason: {reasons}"
    yield (
        f"{figures['counted']} of {figures['prompts']} prompts count for speed, "
        f"{figures['errors']} requests failed; of the prompts {cell(figures['loop_rate'])} looped, "
        f"{cell(figures['same_text'])} had the same text from all arms"
    )


def _interval(figures: dict[str, Any], key: str) -> str | None:
    bounds = figures.get(f"{key}_ci95")
    return None if bounds is None else f"{bounds[0]:.3f} to {bounds[1]:.3f}"
