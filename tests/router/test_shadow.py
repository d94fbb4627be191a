"""What routing would have won, from answers of the default method."""

import numpy as np
import pytest
from routing_world import observe

from router.adaptation import Adaptation
from router.shadow import ShadowTraffic
from schemas import Instead, Observation, RouterConfig, RoutingTable


def answer(table: RoutingTable, index: int, seconds: float, ratio: float) -> Observation:
    """The default took so many seconds, ngram would have taken `ratio` of them."""
    wish = Instead(
        method="ngram" if ratio != 1.0 else "naive",
        predicted_seconds=0.5 * ratio,
        served_predicted_seconds=0.5,
    )
    took = {"decode_seconds": seconds, "total_seconds": seconds}
    made = observe(table, str(index), "naive", 0, **took)
    return made.model_copy(update={"reason": "observed", "instead": wish})


def test_the_speedup_and_how_sure_it_is(table: RoutingTable) -> None:
    rng = np.random.default_rng(0)
    seconds, ratios = rng.uniform(0.2, 2.0, 400), rng.choice([1.0, 0.5, 0.8], 400)
    seen = ShadowTraffic()
    assert seen.report() is None
    for index, (took, ratio) in enumerate(zip(seconds, ratios, strict=True)):
        seen.add(answer(table, index, took, ratio))
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


def test_answers_that_were_routed_do_not_count(table: RoutingTable) -> None:
    seen = ShadowTraffic()
    seen.add(answer(table, 0, 1.0, 0.5).model_copy(update={"instead": None}))
    assert seen.report() is None


def test_each_answer_counts_once_and_outlives_a_restart(table: RoutingTable) -> None:
    config = RouterConfig(observe=True)
    learned = Adaptation(table, config)
    answers = [answer(table, index, 1.0, 0.5) for index in range(5)]
    learned.observe(answers)
    learned.observe(answers[:3])
    report = learned.shadow()
    assert report is not None
    assert (report.answers, report.speedup) == (5, pytest.approx(2.0))
    assert Adaptation.restore(table, config, learned.state()).shadow() == report
    routed = learned.under(RouterConfig())
    assert routed.shadow() == report, "it is still to be read"
    assert routed.under(config).shadow() is None, "but not added to another time's"
