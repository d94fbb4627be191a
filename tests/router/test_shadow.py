"""What routing would have won, from answers of the default method."""

import numpy as np
import pytest

from router.adaptation import Adaptation
from router.shadow import ShadowTraffic
from schemas import DecodeStats, Instead, Observation, RouterConfig, RoutingTable


def answer(index: int, seconds: float, ratio: float, fit_id: str = "made-up") -> Observation:
    """The default took so many seconds, ngram would have taken `ratio` of them."""
    stats = DecodeStats(
        request_id=str(index),
        method="naive",
        temperature=0.0,
        prompt_tokens=10,
        output_tokens=30,
        context_length=40,
        target_steps=30,
        decode_seconds=seconds,
        total_seconds=seconds,
        finish_reason="stop",
    )
    wish = Instead(
        method="ngram" if ratio != 1.0 else "naive",
        predicted_seconds=0.5 * ratio,
        served_predicted_seconds=0.5,
    )
    return Observation(
        stats=stats,
        cluster=0,
        fit_id=fit_id,
        table_version=0,
        policy="predicted_seconds",
        reason="observed",
        propensity=1.0,
        instead=wish,
        time=0.0,
    )


def test_the_speedup_and_how_sure_it_is() -> None:
    rng = np.random.default_rng(0)
    seconds, ratios = rng.uniform(0.2, 2.0, 400), rng.choice([1.0, 0.5, 0.8], 400)
    seen = ShadowTraffic()
    assert seen.report() is None
    for index, (took, ratio) in enumerate(zip(seconds, ratios, strict=True)):
        seen.add(answer(index, took, ratio))
    report = seen.report()
    assert report is not None
    assert report.answers == 400
    assert report.elsewhere == {"ngram": int((ratios != 1.0).sum())}
    assert report.speedup == pytest.approx(seconds.sum() / (seconds * ratios).sum())
    assert report.served_over_predicted == pytest.approx(seconds.mean() / 0.5)
    drawn = rng.integers(0, 400, (4000, 400))
    again = seconds[drawn].sum(1) / (seconds * ratios)[drawn].sum(1)
    assert report.standard_error == pytest.approx(again.std(), rel=0.1), "as a bootstrap's"
    assert ShadowTraffic.restored(seen.state()).report() == report


def test_answers_that_were_routed_do_not_count() -> None:
    seen = ShadowTraffic()
    seen.add(answer(0, 1.0, 0.5).model_copy(update={"instead": None}))
    assert seen.report() is None


def test_each_answer_counts_once_and_outlives_a_restart(table: RoutingTable) -> None:
    config = RouterConfig(observe=True)
    learned = Adaptation(table, config)
    answers = [answer(index, 1.0, 0.5, table.fit_id) for index in range(5)]
    learned.observe(answers)
    learned.observe(answers[:3])
    report = learned.shadow()
    assert report is not None
    assert (report.answers, report.speedup) == (5, pytest.approx(2.0))
    assert Adaptation.restore(table, config, learned.state()).shadow() == report
    routed = learned.under(RouterConfig())
    assert routed.shadow() == report, "it is still to be read"
    assert routed.under(config).shadow() is None, "but not added to another time's"
