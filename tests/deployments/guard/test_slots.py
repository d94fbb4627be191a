"""Slots: slow bodies hold up nobody, what is beyond the places is refused, `/health` needs none."""

import asyncio
import json

import pytest
from asking import HELLO, Client, until

from deployments.guard import slots
from deployments.guard.slots import Slots

BODY = json.dumps(HELLO | {"ignore_eos": True}).encode()


@pytest.fixture
async def asked(ingress, monkeypatch):
    """Asks an application with the slots that the test wants; ends what it leaves open."""
    clients, apps = [], []

    def ask(body=None, more=False, path="/v1/chat/completions", method="POST", **settings):
        if settings or not apps:
            monkeypatch.setattr(slots, "BODY_SECONDS", settings.pop("body_seconds", 600.0))
            settings = {"ongoing": 2, "queued": 2} | settings
            apps.append(Slots(ingress.app, **settings))
        clients.append(Client(apps[-1], path, method=method))
        if body is not None:
            clients[-1].send(body, more)
        return clients[-1]

    yield ask
    for client in clients:
        client.task.cancel()
    await asyncio.gather(*(client.task for client in clients), return_exceptions=True)


async def inside(asked, count, **settings):
    """So many requests whose bodies have begun and do not end."""
    clients = [asked(BODY[:5], more=True, **(settings if i == 0 else {})) for i in range(count)]
    await until(lambda: all(client.messages.empty() for client in clients))
    return clients


async def test_a_client_that_sends_a_byte_now_and_then_is_given_up(asked):
    slow = asked(BODY[:1], more=True, body_seconds=0.2)
    for byte in BODY[1:] * 100:
        slow.send(bytes([byte]), more=True)
        await asyncio.sleep(0.01)
        if slow.task.done():
            break
    assert (slow.status, slow.error["code"]) == (408, "body_timeout")
    assert slow.headers["connection"] == "close", "nothing more is read of it"


async def test_slow_bodies_take_no_slot(asked):
    await inside(asked, 3)
    for _ in range(5):
        plain = await asked(BODY).answered()
        assert plain.status == 200


async def test_what_is_beyond_the_places_is_refused_at_once(asked):
    await inside(asked, 4)
    more = await asked(BODY).answered()
    assert more.status == 429
    assert (more.error["type"], more.error["code"]) == ("rate_limit_error", "server_busy")
    assert int(more.headers["retry-after"]) >= 1


async def test_a_dawdler_makes_room_for_others(asked, monkeypatch):
    first, *_ = await inside(asked, 4)
    monkeypatch.setattr(slots, "DAWDLING_SECONDS", 0.0)
    assert (await asked(BODY).answered()).status == 200
    await first.answered()
    assert (first.status, first.error["code"]) == (408, "body_timeout")


async def test_health_and_pages_need_no_place(asked):
    await inside(asked, 4)
    for path in ("/health", "/", "/v1/models"):
        for _ in range(10):
            assert (await asked(path=path, method="GET").answered()).status == 200


async def test_a_request_waits_for_a_slot_and_gets_it(asked, steps):
    steps.held = lambda _: True
    working = [asked(BODY, ongoing=1, queued=2), asked(BODY)]
    await asyncio.to_thread(steps.holding.wait, 120)
    await until(lambda: all(client.messages.empty() for client in working))
    assert not any(client.sent for client in working)
    steps.free.set()
    for client in working:
        assert (await client.answered()).status == 200


async def test_waiting_for_a_slot_has_an_end(asked, steps, monkeypatch):
    monkeypatch.setattr(slots, "WAITING_SECONDS", 0.05)
    steps.held = lambda _: True
    asked(BODY, ongoing=1)
    await asyncio.to_thread(steps.holding.wait, 120)
    waiting = await asked(BODY).answered()
    assert (waiting.status, waiting.error["code"]) == (429, "server_busy")
    steps.free.set()


async def test_places_come_back_however_a_request_ends(asked):
    for _ in range(3):
        for client in await inside(asked, 4):
            client.leave()
            await asyncio.gather(client.task, return_exceptions=True)
        assert (await asked(b"{").answered()).status == 400
        left = await inside(asked, 4)
        for client in left:
            client.task.cancel()
        await asyncio.gather(*(client.task for client in left), return_exceptions=True)
    for _ in range(3):
        assert (await asked(BODY).answered()).status == 200
