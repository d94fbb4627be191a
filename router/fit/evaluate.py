"""Evaluating routing on held-out prompts."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from router import cluster
from router.constraints import Constraints
from router.fit.profile import Paired, Profile, log_acceptance, prompt_key
from router.fit.regression import lengths_of
from router.fit.speedup import harmonic_mean, paired_bootstrap_ci
from router.policy import choose
from router.prompt import Features, features_of, predictions
from router.table import check_table, restrict
from schemas import MeasuredUnder, RouterConfig, RoutingTable

Floats = NDArray[np.float64]

FOLDS = 5


class EvaluationRefusedError(ValueError):
    """The profile cannot judge this table; the message names the difference."""


@dataclass(frozen=True)
class Evaluation:
    """Harmonic means over prompts of speedups paired over the profile's `baseline`.

    best_single: the method that is best on these very prompts, which makes it the hardest baseline.
    copy_or_not: routing on one bit (see `copy_or_not`). per_prompt_oracle: each prompt's fastest
    measurement. It includes measurement noise, so no router reaches it. The interval is a paired
    bootstrap over prompts.
    by_temperature: the same figures per temperature, against the best single method there.
    """

    prompts: int
    baseline: str
    routed: float
    best_single: str
    best_single_speedup: float
    copy_or_not: float
    per_prompt_oracle: float
    routed_over_best_single: float
    routed_over_best_single_ci95: tuple[float, float]
    shares: dict[str, float]
    harmonic_mean: dict[str, float]
    by_temperature: dict[str, dict[str, float]]


def evaluate(
    table: RoutingTable,
    profile: Profile,
    vectors: NDArray[np.float32],
    methods: Sequence[str] | None = None,
    seed: int = 0,
) -> Evaluation:
    """Route every measured prompt with the policy that serves, unloaded and without exploring.

    vectors: [n, d] in the order of the profile's prompts. methods: the portfolio; default: all of
    the table. Raises EvaluationRefusedError for a profile taken under other conditions or with
    prompts of the fit, RoutingTableError for other settings or unknown methods, and ProfileError if
    nothing can be paired.
    """
    if len(vectors) != len(profile.prompts):
        raise EvaluationRefusedError(
            f"{len(vectors)} vectors for {len(profile.prompts)} profiled prompts"
        )
    served = restrict(table, tuple(table.methods if methods is None else methods))
    refuse_other_conditions(served.measured_under, profile.meta.measured_under)
    check_table(served, settings_hashes=profile.meta.settings_hashes)
    _refuse_shared_prompts(served, profile)

    paired = profile.paired(served.methods)
    labels = cluster.assign(served.centroids, vectors)
    row_of = {p.id: i for i, p in enumerate(profile.prompts)}
    constraints = Constraints(healthy=frozenset(served.methods), explore=False)
    config = RouterConfig(lossy=True)
    texts, lengths = [p.text for p in profile.prompts], lengths_of(profile)
    predicted = predictions(served, vectors, texts, lengths)
    chosen = []
    for prompt_id, temperature in zip(paired.prompt_ids, paired.temperatures, strict=True):
        row = row_of[prompt_id]
        tokens = profile.cells[prompt_id, temperature, served.methods[0]].prompt_tokens
        cell = temperature, predicted[row], int(labels[row])
        asked = Features(tokens, profile.meta.max_tokens, *cell)
        decision = choose(served, asked, (), constraints, config)
        chosen.append(served.methods.index(decision.method))

    routed = paired.speedups[np.arange(len(chosen)), chosen]
    n = len(routed)
    means = {name: harmonic_mean(paired.speedups[:, i]) for i, name in enumerate(served.methods)}
    best = max(means, key=lambda name: means[name])
    single = paired.speedups[:, served.methods.index(best)]
    counted = Counter(served.methods[i] for i in chosen)
    rows = [row_of[prompt_id] for prompt_id in paired.prompt_ids]
    features = np.asarray([features_of(texts[row], lengths[row]) for row in rows])
    temperatures = np.asarray(paired.temperatures)
    return Evaluation(
        prompts=n,
        baseline=profile.baseline,
        routed=harmonic_mean(routed),
        best_single=best,
        best_single_speedup=means[best],
        copy_or_not=harmonic_mean(copy_or_not(profile, paired, features)),
        per_prompt_oracle=harmonic_mean(paired.speedups.max(axis=1)),
        routed_over_best_single=harmonic_mean(routed) / means[best],
        routed_over_best_single_ci95=paired_bootstrap_ci(routed, single, seed),
        shares={name: counted[name] / n for name in served.methods},
        harmonic_mean=means,
        by_temperature={
            f"{t:g}": over_best_single(paired.speedups[at], routed[at], seed)
            for t in np.unique(temperatures)
            for at in [temperatures == t]
        },
    )


def copy_or_not(profile: Profile, paired: Paired, features: Floats) -> Floats:
    """Return the speedups [n] of routing on one bit: does the response copy its prompt?

    features [n, f]: of the prompts' texts.

    A response copies if the method whose acceptance varies most between prompts, a look-up, accepts
    more than on average. A logistic regression on the features predicts the bit, and each half gets
    its best method. Both are fitted on four fifths of the prompts and score the others.
    """
    from sklearn.linear_model import LogisticRegression

    rows = [
        [log_acceptance(profile.cells[prompt, temperature, name]) for name in paired.methods]
        for prompt, temperature in zip(paired.prompt_ids, paired.temperatures, strict=True)
    ]
    accepted = np.asarray(rows)
    features = (features - features.mean(axis=0)) / np.maximum(features.std(axis=0), 1e-9)
    fold = np.unique(paired.prompt_ids, return_inverse=True)[1] % FOLDS
    seconds = 1.0 / paired.speedups
    chosen = np.zeros(len(fold), dtype=np.intp)
    for held in (fold == i for i in range(FOLDS)):
        fitting = held if held.all() else ~held  # a single prompt
        varied = accepted[fitting, int(accepted[fitting].std(axis=0).argmax())]
        copied, bit = varied > varied.mean(), np.zeros(len(fold), dtype=bool)
        if 0 < copied.sum() < len(copied):  # else all prompts are alike
            bit = LogisticRegression().fit(features[fitting], copied).predict(features)
        for half in (bit, ~bit):
            known = half & fitting if (half & fitting).any() else fitting
            chosen[held & half] = seconds[known].sum(axis=0).argmin()
    return np.asarray(paired.speedups[np.arange(len(chosen)), chosen])


def over_best_single(speedups: Floats, routed: Floats, seed: int) -> dict[str, float]:
    """Compare the speedups [n] of the chosen methods with the best column of `speedups` [n, m].

    The interval is 95%.
    """
    means = [harmonic_mean(column) for column in speedups.T]
    best = int(np.argmax(means))
    low, high = paired_bootstrap_ci(routed, speedups[:, best], seed)
    return {
        "prompts": len(routed),
        "routed": harmonic_mean(routed),
        "best_single": means[best],
        "routed_over_best_single": harmonic_mean(routed) / means[best],
        "routed_over_best_single_low": low,
        "routed_over_best_single_high": high,
    }


def refuse_other_conditions(table: MeasuredUnder, profile: MeasuredUnder) -> None:
    """Raise EvaluationRefusedError with every condition in which they differ."""
    differences = [
        f"{name} {getattr(table, name)!r} (table) and {getattr(profile, name)!r} (profile)"
        for name in MeasuredUnder.model_fields
        if getattr(table, name) != getattr(profile, name)
    ]
    if differences:
        raise EvaluationRefusedError(
            "the profile was measured under other conditions than the table: "
            f"{'; '.join(differences)}; profile again under the table's"
        )


def _refuse_shared_prompts(table: RoutingTable, profile: Profile) -> None:
    fitted = set(table.provenance.get("prompts", ()))
    shared = [p.id for p in profile.prompts if prompt_key(p.text) in fitted]
    if shared:
        raise EvaluationRefusedError(
            f"{len(shared)} of {len(profile.prompts)} prompts were seen by the fit "
            f"(first: {shared[0]}); profile other prompts"
        )
