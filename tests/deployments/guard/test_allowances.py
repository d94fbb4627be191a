"""Allowances over time, by a clock that the test moves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.guard.limits import Bucket, Meter, Meters, retry_after, worst
from schemas.keys import ApiKey, KeyRing, Limits


class Clock:
    """Stands until it is moved."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


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
    assert retry_after(meter.excess()) == 1
    clock.now += 1.0
    assert meter.excess() is None


def test_tokens_of_an_answer_are_paid_afterwards(clock):
    meter = Meter("key one", Limits(tokens_per_minute=60), clock)
    meter.spend(150)
    assert meter.excess().what == "tokens_per_minute"
    assert meter.excess().seconds == pytest.approx(90.0, abs=0.1)
    clock.now += 91.0
    assert meter.excess() is None


def test_so_many_at_once(clock):
    meter = Meter("key one", Limits(concurrent_requests=1), clock)
    meter.begin()
    assert meter.excess().what == "concurrent_requests"
    meter.end()
    assert meter.excess() is None


def test_a_tenants_keys_share_its_limits_and_new_limits_begin_anew(clock):
    one, two, other = (
        ApiKey(name=name, sha256=digit * 64, tenant=tenant)
        for name, digit, tenant in (
            ("one", "1", "acme"),
            ("two", "2", "acme"),
            ("other", "3", None),
        )
    )
    ring = KeyRing(keys=(one, two, other), tenants={"acme": Limits(requests_per_minute=1)})
    meters = Meters(clock)
    for meter in meters.of(one, ring):
        meter.begin()
    assert worst(meters.of(two, ring)).holder == "tenant acme"
    assert worst(meters.of(other, ring)) is None
    more = ring.model_copy(update={"tenants": {"acme": Limits(requests_per_minute=5)}})
    assert worst(meters.of(two, more)) is None


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
