"""Acceptance by position and by request, as traces have it (Liu et al., section 6)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ops.report.blocks import PERCENTILES, Chart, Section, Series, Table
from ops.tables.trace_figures import Reliability
from router.fit.speedup import MIN_TOKENS
from schemas.method import PLAIN_METHODS

Floats = NDArray[np.float64]

TENTHS = 10
RESAMPLES = 1000
LEAST_DRAFTS = 30
"""In a bin of confidence that is shown."""


@dataclass(frozen=True)
class Acceptance:
    """A drafting method's acceptance over n answers.

    lengths [n]: mean generation length over an answer's positions: accepted draft tokens plus the
    target's own. tenths [n, 10]: by tenth of the answer, nan if too short. levels: the share
    accepted at each level, given that the level before was accepted.
    """

    lengths: Floats
    tenths: Floats
    levels: Floats
    reliability: Reliability


def acceptance_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Acceptance]:
    """Return, by method, the acceptance over traced answers that are long enough.

    Every position counts, whichever steps decoding would take, as in the study.
    """
    by_method: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["method"] not in PLAIN_METHODS and len(row["answer"]) >= MIN_TOKENS:
            by_method.setdefault(row["method"], []).append(row)
    return {name: _acceptance(own) for name, own in by_method.items()}


def _acceptance(rows: Sequence[Mapping[str, Any]]) -> Acceptance:
    depth = max(len(kept) for row in rows for kept in row["kept"])
    reached, kept = np.zeros(depth), np.zeros(depth)
    lengths, tenths, reliability = [], [], Reliability()
    for row in rows:
        generated = np.asarray([1.0 + sum(levels) for levels in row["kept"]])
        lengths.append(generated.mean())
        parts = np.arange(len(generated)) * TENTHS // len(generated)
        inside = [generated[parts == part] for part in range(TENTHS)]
        tenths.append([part.mean() if len(part) else np.nan for part in inside])
        for levels in row["kept"]:
            shares = np.asarray([1.0, *levels])
            reached[: len(levels)] += shares[:-1]
            kept[: len(levels)] += shares[1:]
        for levels, confidences in zip(row["kept"], row["confidences"], strict=True):
            reliability.add(levels, confidences)
    return Acceptance(
        np.asarray(lengths),
        np.asarray(tenths),
        np.divide(kept, reached, out=np.zeros(depth), where=reached > 0),
        reliability,
    )


def acceptance_section(found: Mapping[str, Acceptance], seed: int) -> Section:
    """The study's Figures 5 and 6, its Table 4, and acceptance by draft level."""
    slots = {name: slot for slot, name in enumerate(found)}
    return Section(
        "acceptance",
        "Acceptance by position and by request",
        [
            "Generation length is what a step at a position brings: the draft tokens that are "
            "kept, and the target's own. Every position of every answer is graded, also those at "
            "which decoding would begin no step."
        ],
        [
            _by_request(found),
            Chart(
                "acceptance-requests",
                "Generation length by request",
                "The box from the 25th to the 75th percentile of answers' means, the whiskers to "
                "the 5th and 95th.",
                "boxes",
                "method",
                "generation length",
                [
                    Series(n, (), np.percentile(f.lengths, PERCENTILES).tolist(), slot=slots[n])
                    for n, f in found.items()
                ],
            ),
            Chart(
                "acceptance-positions",
                "Generation length along the answer",
                "Means over answers by tenth of the answer, with 95% bootstrap intervals.",
                "lines",
                "tenth of the answer",
                "generation length",
                [_along(name, f, slots[name], seed) for name, f in found.items()],
            ),
            Chart(
                "acceptance-levels",
                "Draft tokens kept, by their place in the draft",
                "Of the drafts whose earlier tokens were all kept.",
                "lines",
                "place in the draft",
                "share kept",
                [
                    Series(n, list(range(1, len(f.levels) + 1)), f.levels.tolist(), slot=slots[n])
                    for n, f in found.items()
                ],
            ),
            _reliability(found, slots),
        ],
    )


def _reliability(found: Mapping[str, Acceptance], slots: Mapping[str, int]) -> Chart:
    series = []
    for name, one in found.items():
        bins = [b for b in one.reliability.figures() if b["drafts"] >= LEAST_DRAFTS]
        sure, kept = [b["confidence"] for b in bins], [b["kept"] for b in bins]
        if bins:
            series.append(Series(name, sure, kept, slot=slots[name]))
    return Chart(
        "acceptance-reliability",
        "Draft tokens kept, by how sure their drafter is of them",
        "Where the tokens before them were kept; in tenths of confidence with "
        f"{LEAST_DRAFTS} draft tokens or more. A head's confidence is the probability of its "
        "favourite, and a tree keeps more than that; a look-up's is what it expects, and should "
        "lie where it is as sure as it says.",
        "lines",
        "confidence",
        "share kept",
        [*series, Series("as sure as it says", [0.0, 1.0], [0.0, 1.0], slot=len(slots))],
    )


def _by_request(found: Mapping[str, Acceptance]) -> Table:
    rows = [
        [name, len(f.lengths), float(f.lengths.mean()), float(np.median(f.lengths)), _spread(f)]
        for name, f in found.items()
    ]
    return Table(
        "acceptance-table",
        "Generation length over requests",
        "Mean, median and standard deviation of answers' mean generation lengths (the study's "
        "Table 4).",
        ["method", "answers", "mean", "median", "standard deviation"],
        rows,
        decimals=2,
    )


def _spread(found: Acceptance) -> float:
    return float(found.lengths.std())


def _along(name: str, found: Acceptance, slot: int, seed: int) -> Series:
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, len(found.tenths), (RESAMPLES, len(found.tenths)))
    means = np.nanmean(found.tenths[drawn], axis=1)
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    middle = np.nanmean(found.tenths, axis=0)
    places = list(range(1, TENTHS + 1))
    return Series(name, places, middle.tolist(), low.tolist(), high.tolist(), slot=slot)
