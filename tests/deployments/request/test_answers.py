"""From prompt to answer over a real engine: routing, failover, cancellation, observations."""

import asyncio

import numpy as np
import pytest
from asking import answered, broken, prompt, spoken

from deployments.errors import ApiError
from deployments.request import answer as answer_module
from deployments.request.answer import remembered
from router.cluster import unpacked
from schemas import DecodeChunk
from workers.engine import EngineBusyError

ORDER = ["draft_verify", "ngram", "naive"]


async def test_the_favourite_answers_and_is_observed(ingress):
    answer = await answered(ingress, prompt())
    chunks = await spoken(answer)
    assert (answer.method, answer.reason) == ("draft_verify", "preferred")
    assert chunks[-1].finish_reason == "length"
    assert sum(len(chunk.token_ids) for chunk in chunks) == 12
    assert answer.stats.output_tokens == 12
    assert ingress.link.waiting == 1
    await ingress.link.exchange()
    assert ingress.link.table.version == 1


@pytest.mark.parametrize("error", [RuntimeError("gone"), EngineBusyError("full"), None])
async def test_the_next_method_answers_where_the_first_cannot(ingress, error):
    ingress.streams["draft_verify"] = broken(error)
    answer = await answered(ingress, prompt())
    assert (answer.method, answer.reason) == ("ngram", "failover")
    assert (await spoken(answer))[-1].finish_reason == "length"


async def test_full_lines_everywhere_are_429_with_a_time_to_retry(ingress):
    ingress.streams |= dict.fromkeys(ORDER, broken(EngineBusyError("full")))
    with pytest.raises(ApiError) as caught:
        await answered(ingress, prompt())
    assert caught.value.status == 429
    assert caught.value.headers() == {"retry-after": "1"}


async def test_what_two_methods_failed_of_reaches_no_third(ingress):
    reached = []

    def dying(name):
        async def stream(*_):
            reached.append(name)
            raise RuntimeError("gone")
            yield

        return stream

    ingress.streams |= {name: dying(name) for name in ORDER}
    with pytest.raises(ApiError) as caught:
        await answered(ingress, prompt())
    assert reached == ["draft_verify", "ngram"]
    assert (caught.value.status, caught.value.code) == (500, "request_given_up")
    assert caught.value.headers() == {"x-should-retry": "false"}, (
        "OpenAI's clients would send it on"
    )


async def test_the_only_method_that_may_answer_is_asked_once_more(ingress):
    first, real = iter([broken(RuntimeError("gone"))]), ingress.streams["naive"]
    ingress.streams["naive"] = lambda *asked: next(first, real)(*asked)
    answer = await answered(ingress, prompt(pinned="naive"))
    assert (answer.method, answer.reason) == ("naive", "failover")
    assert (await spoken(answer))[-1].finish_reason == "length"


@pytest.fixture(autouse=True)
def watchful(monkeypatch):
    """Calls look at the load reports often."""
    monkeypatch.setattr("deployments.request.calls.WATCH_SECONDS", 0.02)


def reports(ingress, **replicas):
    """Let each replica report the method it is given."""
    [load] = ingress.loads.reports
    ingress.loads.reports = tuple(
        load.model_copy(update={"replica": name, "methods": (method,)})
        for name, method in replicas.items()
    )


async def test_where_an_engine_stalls_in_the_middle_another_goes_on(ingress):
    async def stalling(request, _):
        yield DecodeChunk(request_id=request.request_id, text="so far")
        await asyncio.Event().wait()

    reports(ingress, first=ORDER[0], second=ORDER[1])
    ingress.streams["draft_verify"] = stalling
    answer = await answered(ingress, prompt())
    assert (await anext(answer.chunks)).text == "so far"
    waiting = asyncio.create_task(anext(answer.chunks))
    failed, other = ingress.loads.reports
    ingress.loads.reports = (failed.model_copy(update={"healthy": False}), other)
    await asyncio.wait_for(waiting, 120.0)
    assert (answer.method, answer.reason) == ("ngram", "failover")


@pytest.mark.parametrize("alone", [True, False])
async def test_a_replica_that_falls_silent_is_given_up_when_its_reports_stop(ingress, alone):
    """Whether it is the method's only one, or one of two and known to have the request."""

    async def silent(request, _):
        if not alone:
            ingress.answerer.in_flight.place(request.request_id, "silent", accepted=True)
        reached.set()
        await asyncio.Event().wait()
        yield DecodeChunk(request_id=request.request_id, text="never")

    reached = asyncio.Event()
    reports(ingress, silent=ORDER[0], other=ORDER[1] if alone else ORDER[0], third=ORDER[1])
    ingress.streams[ORDER[0]] = silent
    asked = asyncio.create_task(answered(ingress, prompt()))
    await asyncio.wait_for(reached.wait(), 120.0)
    assert not asked.done()
    ingress.loads.reports = ingress.loads.reports[1:]
    answer = await asyncio.wait_for(asked, 120.0)
    assert (answer.method, answer.reason) == (ORDER[1], "failover")


async def test_after_two_failures_in_the_middle_an_answer_is_broken_off(ingress):
    ingress.streams |= dict.fromkeys(ORDER, broken(RuntimeError("gone"), after=2))
    answer = await answered(ingress, prompt())
    with pytest.raises(ApiError) as caught:
        await spoken(answer)
    assert caught.value.code == "answer_broken_off"
    # A part teaches if its steps took longer than their reader, so perhaps none.
    learned = ingress.link._waiting.values()
    assert all(each.stats.finish_reason == "cancelled" for each in learned)


async def test_reports_that_stop_altogether_end_no_answer(ingress):
    reached, asked_again = asyncio.Event(), asyncio.Event()

    async def late(request, _):
        reached.set()
        await asked_again.wait()
        yield DecodeChunk(request_id=request.request_id, text="here", finish_reason="stop")

    class Watched(tuple):
        def __iter__(self):
            asked_again.set()
            return super().__iter__()

    ingress.streams["draft_verify"] = late
    asked = asyncio.create_task(answered(ingress, prompt()))
    await asyncio.wait_for(reached.wait(), 120.0)
    ingress.loads.reports = Watched()
    assert (await asyncio.wait_for(asked, 120.0)).method == "draft_verify"


async def test_an_encoder_that_fails_degrades_one_prompt_only(ingress):
    def fails(*_):
        raise RuntimeError("no memory")

    good, ingress.answerer._embed = ingress.answerer._embed, fails
    assert (await ingress.answerer.route(prompt()))[0].reason == "degraded"
    ingress.answerer._embed = good
    assert (await ingress.answerer.route(prompt()))[0].reason == "preferred"


async def test_the_prompts_vector_goes_with_one_observation(ingress, encoder):
    for answer in await ingress.answerer.answers(prompt(choices=3)):
        await spoken(answer)
    sent = [o.vector for o in ingress.link._waiting.values() if o.vector is not None]
    assert len(sent) == 1
    [expected] = encoder.embed([prompt().text])
    np.testing.assert_allclose(unpacked(sent[0], len(expected)), expected, atol=5e-4)


async def test_a_vector_of_whoever_does_not_teach_goes_nowhere(ingress):
    for answer in await ingress.answerer.answers(prompt(teaches=False)):
        await spoken(answer)
    [sent] = ingress.link._waiting.values()
    assert sent.vector is None
    assert sent.cluster >= 0


async def test_a_refit_while_a_prompt_is_embedded_decides_for_the_new_clusters(ingress):
    old, embed = ingress.link.table, ingress.answerer._embed
    new = old.model_copy(update={"fit_id": "new", "centroids": old.centroids[::-1]})

    def meanwhile(*asked):
        ingress.link.table = new
        return embed(*asked)

    before, _ = await ingress.answerer.route(prompt())
    ingress.answerer._embed = meanwhile
    after, _ = await ingress.answerer.route(prompt())
    assert (after.fit_id, after.cluster) == ("new", 1 - before.cluster)


def test_a_text_that_comes_again_has_the_same_vector(monkeypatch):
    """Two vectors are kept."""
    monkeypatch.setattr(answer_module, "EMBEDDED_TEXTS", 2)
    embedded = []

    def fresh(text):
        embedded.append(text)
        return np.full((1, 3), len(embedded), dtype=np.float32)

    embed = remembered(fresh)
    first = embed("", "a")
    assert embed("", "a") is first
    assert embed("", "b") is not first
    embed("", "a")
    embed("", "c")
    embed("", "a")
    assert embedded == ["a", "b", "c"], "the one that was not asked for longest is forgotten"
    embed("", "b")
    assert embedded[-1] == "b"
    with pytest.raises(ValueError, match="read-only"):
        first[0, 0] = 7.0


async def test_prompts_are_routed_by_the_vectors_kept(ingress, encoder):
    text = "Write a Python function that reverses a list, and one that sorts it."
    asked = prompt(text=text)
    vectors = [(await ingress.answerer.route(asked))[1] for _ in range(2)]
    assert vectors[0] is vectors[1]
    np.testing.assert_array_equal(vectors[0], encoder.embed([text]))
    _, other = await ingress.answerer.route(prompt(text=text, scope="another"))
    assert other is not vectors[0]
