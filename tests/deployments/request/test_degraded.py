"""What an answer says where encoder, feedback actor or fresh news of the table is missing."""

import pytest
from asking import HELLO, Counted
from stores import gone

from deployments.learning.link import FeedbackLink


@pytest.fixture
def counted(ingress):
    ingress.answerer._metrics.degraded = made = Counted()
    return made


async def said(ingress, **fields):
    response = await ingress.http.post("/v1/chat/completions", json=HELLO | fields)
    assert response.status_code == 200
    return response.headers.get("x-specadapt-degraded")


@pytest.mark.parametrize("stream", [True, False])
async def test_no_encoder(ingress, counted, stream):
    ingress.answerer._embed = None
    assert await said(ingress, stream=stream) == "no-encoder"
    assert counted.tags == [{"mode": "no-encoder"}]


async def test_no_store(ingress, counted):
    with gone(ingress.config):
        assert await said(ingress) is None
        await ingress.link.exchange()
        assert await said(ingress) == "no-feedback"
        assert counted.tags == [{"mode": "no-feedback"}]
        assert (await ingress.http.get("/health")).status_code == 200
        feedback = (await ingress.http.get("/v1/routing")).json()["feedback"]
        assert feedback["connected"]
        assert ingress.config.feedback.state_uri in feedback["problem"]
    await ingress.link.exchange(everything=True)
    assert await said(ingress) is None
    assert (await ingress.http.get("/v1/routing")).json()["feedback"]["problem"] is None


async def test_a_stale_table(ingress, counted, monkeypatch):
    monkeypatch.setattr(FeedbackLink, "age_seconds", 29.0)
    assert await said(ingress) is None
    monkeypatch.setattr(FeedbackLink, "age_seconds", 31.0)
    ingress.answerer._embed = None
    assert await said(ingress) == "no-encoder, stale-table"
    assert counted.tags == [{"mode": "no-encoder"}, {"mode": "stale-table"}]


async def test_the_tables_age_starts_anew_with_every_exchange(ingress):
    ingress.link._exchanged -= 60.0
    assert ingress.link.age_seconds > 59.0
    await ingress.link.exchange()
    assert ingress.link.age_seconds < 59.0
