"""Allowances over time, by a clock that the test moves."""

import contextlib

import pytest
from asking import Clock
from hypothesis import given
from hypothesis import strategies as st

from deployments.errors import ApiError
from deployments.guard.caller import Bucket, Caller, Meter, Meters, check
from schemas.keys import ApiKey, KeyRing, Limits


@pytest.fixture
def clock():
    return Clock()


def test_requests_come_back_with_time(clock):
    meter = Meter("key one", Limits(requests_per_minute=2), clock)
    for _ in range(2):
        assert meter.excess() is None
        meter.begin()
    excess = meter.excess()
    assert (excess.what, excess.limit, excess.seconds) == ("requests_per_minute", 2, 30.0)
    clock.now += 29.0
    with pytest.raises(ApiError) as caught:
        check([meter.excess()])
    assert caught.value.retry_after == 1
    clock.now += 1.0
    assert meter.excess() is None


def test_tokens_of_an_answer_are_paid_afterwards(clock):
    meter = Meter("key one", Limits(tokens_per_minute=60), clock)
    meter.spend(150)
    assert meter.excess().what == "tokens_per_minute"
    assert meter.excess().seconds == pytest.approx(90.0, abs=0.1)
    clock.now += 91.0
    assert meter.excess() is None


def test_a_tenants_keys_share_its_limits_and_new_limits_begin_anew(clock):
    tenants = {"one": "acme", "two": "acme", "other": None}
    one, two, other = (
        ApiKey(name=name, sha256=f"{number}" * 64, tenant=tenant)
        for number, (name, tenant) in enumerate(tenants.items())
    )
    ring = KeyRing(keys=(one, two, other), tenants={"acme": Limits(requests_per_minute=1)})
    meters = Meters(clock)
    for meter in meters.of(one, ring):
        meter.begin()
    with pytest.raises(ApiError, match="tenant acme"):
        check(m.excess() for m in meters.of(two, ring))
    check(m.excess() for m in meters.of(other, ring))
    more = ring.model_copy(update={"tenants": {"acme": Limits(requests_per_minute=5)}})
    check(m.excess() for m in meters.of(two, more))


@given(
    st.floats(1.0, 1e4),
    st.lists(st.tuples(st.floats(0.0, 120.0), st.floats(0.0, 1e4)), max_size=20),
)
def test_nobody_gets_more_than_the_allowance(per_minute, script):
    """Taking only when nothing is owed, what is taken before the last taking is never more than
    the first minute's worth and what has come since."""
    clock = Clock()
    bucket, taken, before = Bucket(per_minute, clock), 0.0, 0.0
    for seconds, amount in script:
        clock.now += seconds
        if bucket.wait() == 0.0:
            before, taken = taken, taken + amount
            bucket.take(amount)
            assert before <= per_minute * (1.0 + (clock.now - 100.0) / 60.0) * (1 + 1e-9) + 1e-6
        else:
            clock.now += bucket.wait() + 1e-6
            assert bucket.wait() <= 1e-3 / (per_minute / 60.0)


def metered(clock, **limits):
    meter = Meter("key one", Limits(**limits), clock)
    return Caller("one", meters=[meter]), meter


def test_a_batch_counts_as_its_requests(clock):
    caller, meter = metered(clock, requests_per_minute=60, concurrent_requests=64)
    with caller.running():
        caller.batch(40, "prompt")
        assert meter.excess(24, 24).what == "requests_per_minute"
        assert meter.excess(20, 25).what == "concurrent_requests"
        assert meter.excess(20, 24) is None
    assert meter.excess(20, 64) is None, "what is over counts no more"
    with (
        caller.running(),
        pytest.raises(ApiError, match="key one: requests_per_minute is 60") as caught,
    ):
        caller.batch(21, "prompt")
    assert (caught.value.status, caught.value.retry_after) == (429, 1)
    assert meter.excess(19) is None, "a batch that is refused takes one request"


def test_texts_that_are_read_one_by_one_take_one_place(clock):
    caller, meter = metered(clock, requests_per_minute=100, concurrent_requests=2)
    with caller.running():
        caller.batch(50, "input", at_once=False)
        assert meter.excess(50, 1) is None
        assert meter.excess(51, 1).what == "requests_per_minute"


@pytest.mark.parametrize(
    ("limits", "at_once"),
    [
        ({"requests_per_minute": 10}, True),
        ({"requests_per_minute": 10}, False),
        ({"concurrent_requests": 10}, True),
    ],
)
def test_a_batch_that_no_wait_would_make_fit_is_a_400(clock, limits, at_once):
    caller, _ = metered(clock, **limits)
    with caller.running():
        caller.batch(10, "prompt", at_once)
    clock.now += 60.0
    with (
        caller.running(),
        pytest.raises(ApiError, match=r"n: this counts as 11 requests.*is 10") as caught,
    ):
        caller.batch(11, "n", at_once)
    assert (caught.value.status, caught.value.param) == (400, "n")


def test_a_limit_below_one_a_minute_still_lets_single_requests_through(clock):
    caller, meter = metered(clock, requests_per_minute=0.5)
    assert meter.excess() is None
    with caller.running():
        caller.batch(1, "n")
    assert meter.excess().seconds == pytest.approx(120.0)


def test_a_prompts_tokens_are_there_before_they_are_read(clock):
    caller, meter = metered(clock, tokens_per_minute=60)
    caller.read(50)
    with pytest.raises(ApiError, match="tokens_per_minute is 60") as caught:
        caller.read(30)
    assert caught.value.retry_after == 20
    clock.now += 20.0
    caller.read(30)
    caller.unread(30)
    caller.read(30)
    clock.now += 60.0
    caller.read(500)  # longer than a minute's worth: it is let through, and paid afterwards
    assert meter.excess().seconds == pytest.approx(440.0, abs=0.1)


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=12))
def test_what_runs_is_never_more_than_allowed_and_all_of_it_ends(batches):
    clock = Clock()
    meter = Meter("key one", Limits(concurrent_requests=30), clock)
    with contextlib.ExitStack() as running:
        used = 0
        for size, at_once in batches:
            if meter.excess() is not None:
                break
            caller = running.enter_context(Caller("one", meters=[meter]).running())
            used += 1
            with contextlib.suppress(ApiError):
                caller.batch(size, "n", at_once)
                used += size - 1 if at_once else 0
            assert used <= 30
        assert meter.excess(0, 30 - used) is None
        assert meter.excess(0, 31 - used) is not None
    assert meter.excess(0, 30) is None


def test_work_without_an_answer_counts_as_tokens_and_is_no_use(clock):
    meter = Meter("key one", Limits(tokens_per_minute=600), clock)
    caller = Caller(meters=[meter])
    caller.worked(0.5)
    assert meter.excess() is None
    caller.worked(0.2)
    assert meter.excess().seconds == pytest.approx(10.0, abs=0.01)
    assert caller.tokens == 0


def test_a_requests_own_work_does_not_refuse_its_prompt(clock):
    caller, meter = metered(clock, tokens_per_minute=60)
    caller.worked(0.01)
    caller.read(100)
    assert meter.excess().seconds == pytest.approx(50.0, abs=0.01)
