"""A method without a replica is asked for one, once, while others answer."""

import asyncio

from asking import answered, prompt, spoken, until

from deployments.request.starting import START_SECONDS, Starting


class Deployment:
    """A method's, as far as it is started: `started` is set from outside."""

    def __init__(self):
        self.asked = self.done = 0
        self.started = asyncio.Event()

    async def __call__(self):
        self.asked += 1
        await self.started.wait()
        self.done += 1


async def test_one_start_at_a_time():
    deployment = Deployment()
    starting = Starting({"a": deployment})
    assert starting.startable({"b"}).keys() == {"a"}
    assert starting.startable({"a"}) == {}
    for _ in range(5):
        starting.start("a")
        await asyncio.sleep(0)
    assert deployment.asked == 1
    deployment.started.set()
    await until(lambda: deployment.done)
    starting.start("a")
    await asyncio.sleep(0)
    assert deployment.asked == 1, "it warms up"
    assert starting.startable({"a"}) == {}
    starting.start("a")
    await until(lambda: deployment.asked == 2)


async def test_a_start_that_takes_long_is_expected_to_take_as_long_again():
    """No node may have room for it."""
    now, deployment = [100.0], Deployment()
    starting = Starting({"a": deployment}, clock=lambda: now[0])
    assert starting.startable({}) == {"a": START_SECONDS}
    starting.start("a")
    for waited, expected in ((10.0, START_SECONDS), (45.0, 45.0), (3600.0, 3600.0)):
        now[0] = 100.0 + waited
        assert starting.startable({}) == {"a": expected}
    starting.startable({"a"})
    assert starting.startable({}) == {"a": START_SECONDS}


async def test_a_start_that_fails_may_be_tried_again():
    asked = []

    async def gone():
        asked.append(1)
        raise RuntimeError("no room")

    starting = Starting({"a": gone})
    for tries in (1, 2):
        starting.start("a")
        await until(lambda tries=tries: len(asked) == tries and not starting._under_way)


async def test_the_favourite_starts_while_another_answers(ingress):
    """Its replica has not reported, and it may have none."""
    deployment = Deployment()
    ingress.answerer.starting = Starting({"draft_verify": deployment})
    load = ingress.engine.load().model_copy(update={"methods": ("naive", "ngram")})
    ingress.loads.reports = (load,)
    explained, _ = await ingress.answerer.route(prompt(), explore=False)
    assert (explained.reason, explained.starts) == ("starting", "draft_verify")
    assert deployment.asked == 0, "to explain a decision starts nothing"
    for _ in range(2):
        answer = await answered(ingress, prompt())
        assert (answer.method, answer.reason) == ("ngram", "starting")
        await spoken(answer)
    assert deployment.asked == 1
    ingress.loads.reports = (ingress.engine.load(),)
    deployment.started.set()
    assert (await answered(ingress, prompt())).method == "draft_verify"


async def test_a_service_whose_methods_all_sleep_is_healthy(ingress):
    """The first request starts a replica; one that nothing would start is not ready yet."""
    ingress.loads.reports = ()
    assert (await ingress.http.get("/health")).status_code == 503
    ingress.answerer.starting = Starting({"naive": Deployment()})
    health = await ingress.http.get("/health")
    assert (health.status_code, health.json()["methods"]) == (200, [])
