"""What a request costs others counts, when its method is chosen."""

import pytest
from routing_world import METHODS, STEP, report
from test_policy import MADE, NGRAM, route

from router.acceptance import acceptance
from router.load import Prospect
from router.prompt import Features
from router.replica_loads import ReplicaLoads
from schemas import RoutingTable

AT_0 = Features(prompt_tokens=20, max_tokens=128, cluster=0)
SHARED = {"methods": MADE.methods, "outstanding_tokens": 240}


def test_what_others_would_wait_counts(table: RoutingTable) -> None:
    """n-gram's requests share the only replica. Each of their steps would take longer by the draft
    model's share; and as much longer those of others, whatever they are."""
    accepted, seconds = table.acceptance_steps.copy(), table.step_seconds.copy()
    # On the first cluster n-gram is near the draft model, whose steps in batches take longer.
    accepted[0, NGRAM] = table.acceptance_tokens[0, NGRAM] / 1.6
    seconds[table.methods.index("draft"), 1:] *= 1.6
    near = table.model_copy(update={"acceptance_steps": accepted, "step_seconds": seconds})
    idle = report("all", methods=MADE.methods)
    assert route(near, 0, (idle,)).method == "draft"
    shared = {"methods": MADE.methods, "running": 6, "outstanding_tokens": 360}
    copying = report("all", **shared, running_by_method={"ngram": 6})
    beside = route(near, 0, (copying,))
    assert (beside.method, beside.reason) == ("ngram", "load")
    moves = route(near, 0, (copying,), conversation_method="draft")
    assert (moves.method, moves.reason) == ("ngram", "load")


def in_turn(batch: int) -> float:
    """How much is lost in all for each second that a batch is delayed."""
    return 1.0 + (1.0 - 1.0 / (0.7 + 0.3 * batch))


def test_a_delay_is_what_others_lose() -> None:
    """By hand: in the made-up world a step of b sequences takes 0.7 + 0.3 b times as long, and what
    is lost is lost to those who come later too."""
    three = report("all", **SHARED, running=3, running_by_method={"ngram": 3})
    found = Prospect(MADE, Features(20, 61, cluster=1)).under(ReplicaLoads((three,), MADE))
    accepted = acceptance(MADE)[1, :, 0]
    steps = 60 / accepted[NGRAM]
    longer = STEP["ngram"] * 0.3
    assert found["ngram"].delay == pytest.approx(in_turn(4) * 3 * (0.02 + steps * longer), rel=0.1)
    steps = 60 / accepted[METHODS.index("draft")]
    mean = (STEP["draft"] + 3 * STEP["ngram"]) / 4
    longer = mean * (0.7 + 0.3 * 4) - STEP["ngram"] * (0.7 + 0.3 * 3)
    assert found["draft"].delay == pytest.approx(in_turn(4) * 3 * (0.02 + steps * longer), rel=0.1)
    full = report("all", **SHARED, running=8, waiting=2, running_by_method={"ngram": 8})
    found = Prospect(MADE, Features(20, 61, cluster=1)).under(ReplicaLoads((full,), MADE))
    turn = 0.02 + 60 / accepted[NGRAM] * STEP["ngram"] * (0.7 + 0.3 * 8) / 8
    assert found["ngram"].delay == pytest.approx(in_turn(8) * (7 * 0.02 + 2 * turn), rel=0.1)
    of_any = 0.02 + 60 / acceptance(MADE)[:, NGRAM, 0].mean() * STEP["ngram"] * (0.7 + 0.3 * 8) / 8
    assert found["ngram"].first == pytest.approx(3 * of_any + 0.02, rel=0.1)


def test_a_line_waits_for_a_methods_own_share_of_the_time() -> None:
    """Behind eight plain sequences a draft costs what drafts cost, not what plain steps do: else
    whoever has the fewest steps looks cheapest where all is full."""
    shares = {}
    for waiting in (1, 2):
        full = report("all", **SHARED, running=8, waiting=waiting, running_by_method={"naive": 8})
        found = Prospect(MADE, Features(20, 61, cluster=1)).under(ReplicaLoads((full,), MADE))
        shares[waiting] = {name: found[name].delay for name in METHODS}
    for m, name in enumerate(METHODS):
        steps = 60 / acceptance(MADE)[1, m, 0]
        share = 0.02 + steps * STEP[name] * (0.7 + 0.3 * 8) / 8
        assert shares[2][name] - shares[1][name] == pytest.approx(in_turn(8) * share, rel=0.1)


SLOW = {"draft": 2.5 * STEP["draft"]}


def test_seconds_on_a_slow_replica_are_its_own(table: RoutingTable) -> None:
    """Seven of the draft model's eight replicas are full; the one with room is slow."""
    fast = {"recent_step_seconds": {"draft": STEP["draft"]}}
    full = [report("draft", 8, 1, replica=f"r{i}", **fast, free_slots=0) for i in range(7)]
    slow = report("draft", replica="r7", recent_step_seconds=SLOW)
    prospect = Prospect(table, AT_0)
    usual = prospect.under(ReplicaLoads([*full, report("draft", replica="r7", **fast)], table))[
        "draft"
    ]
    own = prospect.under(ReplicaLoads([*full, slow], table))["draft"]
    assert usual.seconds == pytest.approx(usual.alone)
    assert own.seconds == pytest.approx(2.5 * usual.seconds, rel=0.15)
    assert own.first == pytest.approx(2.5 * usual.first, rel=0.15)
    assert own.per_token == pytest.approx(2.5 * usual.per_token, rel=0.15)
