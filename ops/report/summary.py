"""What was found in plain words, each sentence with how sure it is."""

from dataclasses import dataclass

from ops.report.blocks import Section
from ops.report.results import Mean, Results

ALIKE = 0.05
"""Two that differ by less are alike to a user."""
RULE = (
    "How sure a sentence is, its 95% interval says. Sure: the interval is all on one side. Alike: "
    f"the interval holds no difference, and none in it is above {100 * ALIKE:.0f}%. Open: anything "
    "else; more prompts would tell. Without interval: a figure of these prompts, of which nothing "
    "is known for others. Intervals are of a bootstrap over prompts and say nothing of other "
    "machines or other models."
)


@dataclass(frozen=True)
class Finding:
    """A sentence and how sure it is: one of the words of RULE."""

    sure: str
    text: str

    def __str__(self) -> str:
        return f"{self.sure}: {self.text}"


def certainty(found: Mean) -> str:
    """Return the word of RULE for a ratio."""
    if found.low is None or found.high is None:
        return "Without interval"
    if found.low > 1.0 or found.high < 1.0:
        return "Sure"
    if found.low >= 1.0 - ALIKE and found.high <= 1.0 + ALIKE:
        return "Alike"
    return "Open"


def summary_section(paper: Results, own: Results | None) -> Section:
    """Return the first section: the findings as sentences."""
    findings = _of_paper(paper) if own is None else [*_speed(own), *_routing(own, paper)]
    return Section("summary", "In plain words", [*map(str, findings), RULE], [])


def _ends(found: Mean) -> str:
    return f"95%: {found.low:.2f} to {found.high:.2f}"


def _of_paper(paper: Results) -> list[Finding]:
    three, all_of_them = paper.assigned(paper.portfolio), paper.assigned(tuple(paper.by_cluster))
    claimed = paper.claims["routed"], paper.claims["best_single"]
    return [
        Finding(
            "Without interval",
            f"the paper routes at {claimed[0]:.2f} times plain decoding, and its best single "
            f"method at {claimed[1]:.2f}: {claimed[0] / claimed[1] - 1:.0%} more. Its tables give "
            f"{three.routed:.2f} and {three.best_single_speedup:.2f}, on the prompts that the "
            "methods were chosen on.",
        ),
        Finding(
            "Without interval",
            f"these are of its three methods in PyTorch. Of all {len(paper.by_cluster)} in its "
            f"Table III {paper.label(all_of_them.best_single)} alone has "
            f"{all_of_them.best_single_speedup:.2f}, and routing among them "
            f"{all_of_them.routed:.2f}.",
        ),
    ]


def _speed(own: Results) -> list[Finding]:
    best = max(own.overall, key=lambda name: own.overall[name])
    found = own.intervals[best]
    slower = max(own.rates, key=lambda name: own.rates[name].slower)
    return [
        Finding(
            certainty(found),
            f"the fastest single method is {best}, {found.value:.2f} times {own.baseline} "
            f"({_ends(found)}).",
        ),
        Finding(
            "Without interval",
            f"the least even is {slower}: on {own.rates[slower].slower:.0%} of the prompts it is "
            f"slower than {own.baseline}.",
        ),
    ]


def _routing(own: Results, paper: Results) -> list[Finding]:
    findings = []
    k = own.clustering.clusters if own.clustering else 0
    found = own.by_k[k].over_best_single if k in own.by_k else None
    if found is not None:
        claimed = paper.claims["routed"] / paper.claims["best_single"]
        findings.append(
            Finding(
                certainty(found),
                f"choosing by {k} clusters, on prompts it was not chosen on, is {found.value:.2f} "
                f"times the best single method ({_ends(found)}); the paper has {claimed:.2f}.",
            )
        )
    if own.oracle is not None:
        best = max(own.overall.values())
        findings.append(
            Finding(
                "Without interval",
                "choosing the best method for each prompt, were it known, would be "
                f"{own.oracle.value / best:.2f} times the best single method: no choice of a "
                "method per prompt can bring more.",
            )
        )
    return findings
