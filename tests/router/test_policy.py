from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from routing_world import ACCEPTANCE, CENTROIDS, ENCODER, METHODS, STEP, make_profile, report

from router import policy
from router.constraints import Constraints
from router.exploration import Explorer
from router.fit.assign import TableOptions, build_table
from router.learner import Learner
from router.load import Prospect
from router.policy import NoMethodAvailableError, choose
from router.predict import StepTimes
from router.prompt import Features
from router.replica_loads import ReplicaLoads
from schemas import Decision, LoadReport, RouterConfig, RoutingTable

CONFIG = RouterConfig()
MADE = build_table(*make_profile(), CENTROIDS, ENCODER)
NGRAM = METHODS.index("ngram")
PROMPT = Features(prompt_tokens=20, max_tokens=128)


def route(
    table: RoutingTable,
    cluster: int = 0,
    loads: tuple[LoadReport, ...] = (),
    config: RouterConfig = CONFIG,
    seed: int = 0,
    features: Features = PROMPT,
    **limits: object,
) -> Decision:
    limits = {"healthy": frozenset(table.methods), "explore": False, **limits}
    constraints = Constraints(**limits)
    explorer = Explorer(np.random.default_rng(seed))
    features = replace(features, cluster=cluster)
    return choose(table, features, loads, constraints, config, explorer)


BUSY = (report("draft", running=8, waiting=8),)
SICK = (report("ngram", healthy=False),)
NGRAM_ALONE = frozenset({"ngram"})
COPYING = {"copying": NGRAM_ALONE}
ASLEEP = {"startable": {"ngram": 30.0}}


@pytest.mark.parametrize(
    ("cluster", "limits", "method", "reason"),
    [
        (0, {}, "draft", "preferred"),
        (1, {}, "ngram", "preferred"),
        (0, {"loads": BUSY}, "ngram", "load"),
        (1, {"healthy": frozenset({"naive", "draft"})}, "draft", "failover"),
        (1, {"loads": SICK}, "draft", "failover"),
        (1, {"resting": NGRAM_ALONE}, "draft", "failover"),
        (1, {"excluded": NGRAM_ALONE}, "draft", "constraint"),
        (1, {"pinned": "naive", "explore": True}, "naive", "pinned"),
        (0, {"pinned": "naive", **COPYING}, "naive", "pinned"),
        (0, COPYING, "ngram", "prediction"),
        (1, COPYING, "ngram", "preferred"),
        (0, {"conversation_method": "draft", **COPYING}, "ngram", "prediction"),
        (0, COPYING | ASLEEP, "draft", "preferred"),
        (0, {"excluded": NGRAM_ALONE, **COPYING}, "draft", "preferred"),
        (0, {"resting": NGRAM_ALONE, **COPYING}, "draft", "preferred"),
    ],
)
def test_who_answers_and_why(table, cluster, limits, method, reason):
    decision = route(table, cluster, **limits)
    assert (decision.method, decision.reason, decision.propensity) == (method, reason, 1.0)
    assert decision.fit_id == table.fit_id
    kept_out = {"healthy", "excluded", "resting"} & limits.keys() or limits.get("loads") is SICK
    assert ("ngram" in decision.ranked) != bool(kept_out or limits.get("pinned"))


def test_predicted_seconds_agree_with_the_made_up_world(table: RoutingTable) -> None:
    predicted = route(table, 0).predicted_seconds
    assert predicted["draft"] == pytest.approx(0.02 + 60 / 2.5 * 0.015, rel=0.05)
    assert predicted["naive"] == pytest.approx(0.02 + 60 * 0.010, rel=0.05)


@pytest.mark.parametrize("batch", [1.0, 2.5, 6.0, 16.0])
def test_step_times_lie_on_the_measured_line(batch: float) -> None:
    """Between batches of 1, 4 and 8 that were measured, and beyond them."""
    times = StepTimes(MADE, 300.0)
    expected = [STEP[name] * (0.7 + 0.3 * batch) for name in METHODS]
    found = [times.of(m, batch) for m in range(len(METHODS))]
    assert found == pytest.approx(expected, rel=0.03)
    assert times.mixed({0: 1, NGRAM: 3}, batch) == pytest.approx((found[0] + 3 * found[NGRAM]) / 4)


def test_a_held_prompt_does_not_replace_the_favourite_on_an_idle_replica(table):
    """Draft is predicted to be 2% faster, within the hysteresis, and to read prompts five times as
    slowly, so that a cached prompt saves it more."""
    slow = table.prefill_seconds.copy()
    slow[METHODS.index("draft")] *= 5.0
    table = table.model_copy(update={"prefill_seconds": slow})
    idle = Prospect(table, replace(PROMPT, cluster=0)).under(ReplicaLoads((), table))
    weight = 0.98 * idle["ngram"].alone / idle["draft"].alone
    config = RouterConfig(weights={"ngram": weight})
    favourite = table.model_copy(update={"assignment": (("ngram",) * 3, *table.assignment[1:])})
    held = replace(PROMPT, held=np.asarray([15.0]))
    idle = (report("shared", methods=table.methods),)
    decision = route(favourite, 0, idle, config, features=held)
    assert (decision.method, decision.reason) == ("ngram", "preferred")
    line = (report("ngram", running=8, waiting=8), report("draft"))
    assert route(favourite, 0, line, config).reason == "load"


def test_load_moves_nobody_to_a_method_that_little_is_known_of(table: RoutingTable) -> None:
    """Of n-gram there is no answer in this cluster, and it looks nearly as fast as the favourite:
    a second prompt in the favourite's batch does not suffice, a long line does."""
    tokens, steps = table.acceptance_tokens.copy(), table.acceptance_steps.copy()
    tokens[0, NGRAM], steps[0, NGRAM] = 0.0, 0.0
    tokens[1, NGRAM] = tokens[1, NGRAM].clip(max=100.0)
    steps[1, NGRAM] = tokens[1, NGRAM] / 1.25
    slow = table.step_seconds.copy()
    slow[METHODS.index("naive")] *= 2.0  # out of the question
    changes = {"acceptance_tokens": tokens, "acceptance_steps": steps, "step_seconds": slow}
    unknown = Learner(table.model_copy(update=changes)).table
    idle = route(unknown, 0)
    assert (idle.method, idle.reason) == ("draft", "preferred")
    little = (report("draft", running=1),)
    busy = route(unknown, 0, little)
    draft = Prospect(unknown, replace(PROMPT, cluster=0)).under(ReplicaLoads(little, unknown))[
        "draft"
    ]
    assert busy.predicted_seconds["ngram"] < draft.seconds + draft.delay
    assert (busy.method, busy.reason) == ("draft", "preferred")
    assert route(unknown, 0, (report("draft", running=8, waiting=8),)).reason == "load"


def test_a_favourite_without_a_replica_is_started_while_others_answer(table: RoutingTable) -> None:
    asleep = route(table, 0, startable={"draft": 30.0}, healthy=frozenset({"naive", "ngram"}))
    assert (asleep.method, asleep.reason, asleep.starts) == ("ngram", "starting", "draft")
    assert asleep.ranked[-1] == "draft", "if all others fail it is worth waiting for"
    assert asleep.predicted_seconds["draft"] > 30.0
    awake = route(table, 0)
    assert (awake.reason, awake.starts) == ("preferred", None)


def test_who_is_no_favourite_here_is_not_started(table: RoutingTable) -> None:
    decision = route(table, 0, startable={"naive": 30.0}, healthy=frozenset({"draft"}))
    assert (decision.method, decision.reason, decision.starts) == ("draft", "preferred", None)


def test_a_long_line_is_worth_a_start(table: RoutingTable) -> None:
    limits = {"startable": {"ngram": 30.0}, "healthy": frozenset({"draft"})}
    busy = [report("draft", running=8, waiting=n) for n in (8, 2000)]
    assert [route(table, 0, (load,), **limits).method for load in busy] == ["draft", "ngram"]
    limits["startable"] = {"ngram": 3600.0}
    assert route(table, 0, busy[1:], **limits).method == "draft", "no node has room for it"


def test_no_fixed_method_is_waited_for_while_another_runs(table: RoutingTable) -> None:
    """The default of prompts without a cluster, or a cluster's own."""
    asleep = {"startable": {"naive": 600.0}, "healthy": frozenset({"draft", "ngram"})}
    configs = {
        -1: RouterConfig(default_method="naive"),
        0: RouterConfig(pinned_clusters={0: "naive"}),
    }
    awake = {-1: "degraded", 0: "pinned_cluster"}
    for cluster, config in configs.items():
        decision = route(table, cluster, config=config, **asleep)
        assert decision.method != "naive"
        assert decision.starts == "naive", "it is asked for"
        running = route(table, cluster, config=config)
        assert (running.method, running.reason) == ("naive", awake[cluster])
        alone = {"startable": {"naive": 600.0}, "healthy": frozenset[str]()}
        assert route(table, cluster, config=config, **alone).method == "naive"


def test_where_nothing_runs_the_favourite_is_waited_for(table: RoutingTable) -> None:
    decision = route(table, 0, startable=dict.fromkeys(METHODS, 30.0))
    assert (decision.method, decision.reason, decision.starts) == ("draft", "preferred", "draft")
    pinned = route(table, 0, startable={"naive": 30.0}, healthy=frozenset(), pinned="naive")
    assert (pinned.method, pinned.starts) == ("naive", "naive")


def test_a_pinned_method_is_used_or_refused(table: RoutingTable) -> None:
    assert route(table, 1, pinned="naive").ranked == ("naive",)
    with pytest.raises(NoMethodAvailableError, match="naive has no healthy replica"):
        route(table, 1, pinned="naive", healthy=frozenset({"draft"}))
    with pytest.raises(NoMethodAvailableError, match="medusa is not served"):
        route(table, 1, pinned="medusa")


def test_nothing_admissible_names_every_obstacle(table: RoutingTable) -> None:
    with pytest.raises(NoMethodAvailableError, match=r"naive cannot serve.*draft has no healthy"):
        route(table, 0, healthy=frozenset(), excluded=frozenset({"naive"}))


def test_a_conversation_stays_unless_another_is_clearly_better(table, monkeypatch):
    # On the first cluster n-gram takes 0.57 s and draft 0.38 s: clearly better.
    assert route(table, 0, conversation_method="ngram").reason == "preferred"
    monkeypatch.setattr(policy, "CONVERSATION_MARGIN", 1.0)
    stays = route(table, 0, conversation_method="ngram")
    assert (stays.method, stays.reason) == ("ngram", "conversation")
    same = route(table, 0, conversation_method="draft")
    assert (same.method, same.reason) == ("draft", "preferred")


def test_lossy_methods_need_to_be_admitted() -> None:
    ACCEPTANCE["fuzzy"], STEP["fuzzy"] = (6.0, 6.0), 0.011
    try:
        profile, vectors = make_profile(methods=(*METHODS, "fuzzy"))
        lossy = build_table(profile, vectors, CENTROIDS, ENCODER, TableOptions(lossy=True))
        assert "fuzzy" not in build_table(profile, vectors, CENTROIDS, ENCODER).methods
    finally:
        del ACCEPTANCE["fuzzy"], STEP["fuzzy"]
    assert route(lossy, 0, config=RouterConfig(lossy=True)).method == "fuzzy"
    refused = route(lossy, 0)
    assert "fuzzy" not in refused.ranked
    assert refused.reason == "preferred"
    assert route(lossy, 0, pinned="fuzzy").method == "fuzzy"


@settings(max_examples=60, deadline=None)
@given(
    cluster=st.integers(-1, 1),
    healthy=st.frozensets(st.sampled_from(METHODS), min_size=1),
    running=st.integers(0, 20),
    waiting=st.integers(0, 20),
    temperature=st.sampled_from([0.0, 0.5, 1.2]),
    seed=st.integers(0, 50),
)
def test_a_decision_is_always_admissible(cluster, healthy, running, waiting, temperature, seed):
    features = Features(prompt_tokens=9, max_tokens=16, temperature=temperature)
    loads = tuple(report(m, running, waiting) for m in healthy)
    decision = route(
        MADE, cluster, loads, seed=seed, features=features, healthy=healthy, explore=True
    )
    assert decision.method in healthy
    assert set(decision.ranked) == healthy
    assert all(s > 0.0 for s in decision.predicted_seconds.values())


def test_like_goes_to_like_on_shared_replicas() -> None:
    """In one batch a slower method's sequences make everybody's steps longer."""
    shared = {"methods": MADE.methods, "running": 4, "outstanding_tokens": 240}
    drafting = report("all", **shared, running_by_method={"draft": 4})
    mixed = report("all", **shared, running_by_method={"draft": 2, "ngram": 2})
    copying = report("all", **shared, running_by_method={"ngram": 4})
    loads = ReplicaLoads((copying, mixed, drafting, report("all", methods=MADE.methods)))
    work = loads.work(0.0, loads.number("ngram")).tolist()
    assert (work[0], work[3]) == (240, 0)
    assert len(set(work)) == 4


def test_the_healthy_replica_with_the_least_work_takes_a_request() -> None:
    sick = report("naive", replica="sick", healthy=False)
    busy = report("naive", running=3, replica="busy")
    idle = [report("naive", replica=name) for name in "ba"]
    assert ReplicaLoads([sick, busy, *idle]).least("naive", 10.0) == 2
    assert ReplicaLoads([sick]).least("naive", 10.0) is None
