"""Forms of prediction on made-up answers of which it is known what explains them."""

from dataclasses import replace

import numpy as np
import pytest

from ops.prediction.answers import Learned, answers_of
from ops.prediction.figures import compared
from router import cluster
from router.assign import build_table
from router.profile import Profile
from tests.router.routing_world import CENTROIDS, ENCODER, make_profile

COPIES = "the cat sat and the cat sat and the cat sat and"
SPEAKS = "nobody has said any of these words before now"


def by_text(name: str, per_cluster: int = 60) -> tuple[Profile, np.ndarray]:
    """n-gram copies where the prompt repeats itself, in either cluster alike."""
    profile, vectors = make_profile(name, per_cluster=per_cluster)
    kinds = np.random.default_rng(len(name)).integers(0, 2, len(profile.prompts))
    texts = {p.id: (SPEAKS, COPIES)[k] for p, k in zip(profile.prompts, kinds, strict=True)}
    prompts = [
        p.model_copy(update={"text": f"{texts[p.id]} {name} {i}"})
        for i, p in enumerate(profile.prompts)
    ]

    def changed(row):
        if row.method != "ngram":
            return row
        steps = 13 if texts[row.prompt_id] == COPIES else 61
        decode = (steps - 1) * 0.011
        return row.model_copy(
            update={
                "target_steps": steps,
                "decode_seconds": decode,
                "seconds": 0.02 + decode,
            }
        )

    return replace(
        profile, prompts=tuple(prompts), rows=tuple(changed(row) for row in profile.rows)
    ), vectors


def forms_on(make) -> dict[str, dict]:
    fit, vectors = make("fit")
    table = build_table(fit, vectors, CENTROIDS, ENCODER)
    held, other = make("held")
    asked = answers_of(held, other, cluster.assign(CENTROIDS, other), table)
    return compared(Learned(table, fit, vectors), asked, 128, seed=0)


def test_what_the_text_says_beyond_its_cluster_is_found_by_regression_and_trees() -> None:
    forms = forms_on(by_text)
    gain = {name: f["by_temperature"]["0"]["routed_over_best_single"] for name, f in forms.items()}
    assert gain["table"] == gain["soft_clusters"] == pytest.approx(1.0)
    assert gain["regression"] == gain["boosting"] == gain["own_acceptance"] > 1.2
    assert forms["own_acceptance"]["log_acceptance_rmse"] == 0.0
    assert forms["regression"]["log_acceptance_rmse"] < forms["table"]["log_acceptance_rmse"] / 4


def test_what_the_cluster_says_is_found_by_all() -> None:
    forms = forms_on(lambda name: make_profile(name, per_cluster=30, spread=0.2))
    best = forms["own_acceptance"]["by_temperature"]["0"]["routed"]
    for name, found in forms.items():
        at = found["by_temperature"]["0"]
        assert at["routed"] > 0.9 * best, name
        assert at["routed_over_best_single_low"] > 1.0, name
