"""Which answers become samples, and what a sample says."""

from contextlib import aclosing

import pytest
from asking import HELLO, answered, dies_after, posted, prompt, reached, spoken
from sampled import sample

from deployments.api.answering import NO_LEARNING
from deployments.guard.key_file import hash_of
from deployments.head_training import actor as actor_module
from deployments.head_training.actor import SampleLine
from deployments.head_training.samples import Samples
from schemas import FeedbackConfig

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
COMPLETION = {"model": "tiny", "prompt": "hello", "max_tokens": 8}
RESPONSE = {"model": "tiny", "input": "hello", "max_output_tokens": 8}
ASKED = {CHAT: HELLO, TEXT: COMPLETION, RESPONSES: RESPONSE, MESSAGES: HELLO}


@pytest.fixture
def kept(ingress, monkeypatch):
    """The samples of an ingress that has training switched on."""
    samples = []
    monkeypatch.setattr(ingress.answerer, "_keep_sample", samples.append)
    return samples


def loops(real):
    """Return a replica whose answers count as loops."""

    async def stream(request, whole):
        async with aclosing(real(request, whole)) as chunks:
            async for chunk in chunks:
                stats = chunk.stats and chunk.stats.model_copy(update={"looping": True})
                yield chunk.model_copy(update={"stats": stats})

    return stream


def vectors(ingress):
    return [observation.vector is not None for observation in ingress.link._waiting.values()]


async def test_a_sample_is_the_prompt_and_the_answer(ingress, kept):
    asked = HELLO | {"temperature": 0.5, "return_token_ids": True, "ignore_eos": True, "n": 2}
    body = await posted(ingress, CHAT, asked)
    first, second = sorted(kept, key=lambda each: each.answer_token_ids)
    answers = sorted(tuple(choice["token_ids"]) for choice in body["choices"])
    assert [first.answer_token_ids, second.answer_token_ids] == answers
    assert first.id != second.id
    assert first.conversation == second.conversation
    for each in kept:
        assert each.prompt_token_ids == tuple(body["prompt_token_ids"])
        assert (each.owner, each.temperature) == ("", 0.5)
        assert each.fit_id == ingress.link.table.fit_id
        assert each.cluster >= 0


@pytest.mark.parametrize("path", ASKED)
async def test_every_api_keeps_answers_unless_the_request_says_no(ingress, kept, path):
    """As samples, and for drafters of later requests to look up."""
    requests = reached(ingress)
    await posted(ingress, path, ASKED[path])
    assert len(kept) == 1
    await posted(ingress, path, ASKED[path] | {"store": False})
    assert vectors(ingress) == [True, True]
    ingress.link._waiting.clear()
    response = await ingress.http.post(path, json=ASKED[path], headers={NO_LEARNING: "1"})
    assert response.status_code == 200
    assert vectors(ingress) == [False]
    assert len(kept) == 1
    assert [request.kept for request in requests] == [True, False, False]


async def test_turns_of_a_conversation_share_its_hash(ingress, kept):
    system = {"role": "system", "content": "Be brief."}
    first = [system, *HELLO["messages"]]
    later = [*first, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "and?"}]
    other = [system, {"role": "user", "content": "goodbye"}]
    for messages in (first, later, other):
        await posted(ingress, CHAT, HELLO | {"messages": messages})
    for text in ("hello", "goodbye"):
        await posted(ingress, TEXT, COMPLETION | {"prompt": text})
    hashes = [each.conversation for each in kept]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 4


async def test_only_keys_that_say_so_take_part(kept, behind_guard):
    keys = [
        {"name": "app", "tenant": "acme", "teaches": True},
        {"name": "alone", "teaches": True},
        {"name": "unsaid", "tenant": "acme"},
        {"name": "silent", "tenant": "acme", "teaches": False},
    ]
    body = {"keys": [k | {"sha256": hash_of(k["name"])} for k in keys], "tenants": {"acme": {}}}
    client = behind_guard(body)
    for key in keys:
        async with client(key["name"]) as http:
            assert (await http.post(CHAT, json=HELLO)).status_code == 200
    assert [each.owner for each in kept] == ["tenant acme", "key alone"]


async def test_an_answer_of_two_methods_is_whole(ingress, kept):
    ingress.streams["draft_verify"] = dies_after(ingress.streams["naive"], 4)
    answer = await answered(ingress, prompt(owner=""))
    chunks = await spoken(answer)
    [sample] = kept
    assert answer.reason == "failover"
    assert sample.answer_token_ids == tuple(t for chunk in chunks for t in chunk.token_ids)
    assert len(sample.answer_token_ids) == 12
    assert (sample.id, sample.method) == (answer.request_id, answer.method)


async def test_what_no_head_should_learn_is_left_out(ingress, kept):
    await spoken(await answered(ingress, prompt()))
    await spoken(await answered(ingress, prompt(owner="", silent=True)))
    await spoken(await answered(ingress, prompt(owner="", adapter="law")))
    abandoned = await answered(ingress, prompt(owner=""))
    await abandoned.close()
    ingress.streams["draft_verify"] = loops(ingress.streams["draft_verify"])
    looping = await answered(ingress, prompt(owner=""))
    await spoken(looping)
    assert looping.stats.looping
    assert kept == []


@pytest.mark.parametrize(
    "changed",
    [
        {"logit_bias": {"40": 1}},
        {"presence_penalty": 0.5},
        {"frequency_penalty": -0.5},
        {"repetition_penalty": 1.1},
        {"structured_outputs": {"regex": "[a-z]{4}"}},
    ],
)
async def test_answers_that_are_not_the_targets_own_are_left_out(ingress, kept, changed):
    await posted(ingress, TEXT, COMPLETION | {"temperature": 0.7, "top_p": 0.9})
    assert len(kept) == 1
    await posted(ingress, TEXT, COMPLETION | changed)
    assert len(kept) == 1


class Door:
    """Leads to the samples, where there is an actor that has them."""

    def __init__(self, samples):
        self.samples, self.open = samples, True
        self.batches = []

    async def connect(self):
        if not self.open:
            raise ValueError("no such actor")
        return self

    async def take(self, batch):
        if not self.open:
            raise ValueError("the actor has died")
        self.batches.append(len(batch))
        self.samples.take(batch)


@pytest.fixture
def door(tmp_path):
    feedback = FeedbackConfig(state_uri=str(tmp_path))
    return Door(Samples(feedback, "tiny", "target", lambda: 1000.0))


def ids(door):
    return [each.id for each in door.samples.kept()]


async def test_what_waits_for_the_actor_is_bounded(door, monkeypatch, caplog):
    monkeypatch.setattr(actor_module, "MOST_TOKENS", 150)
    line = SampleLine(door.connect)
    line.add(sample("first"))
    await line.send()
    door.open = False
    for i in range(5):
        line.add(sample(f"s{i}"))
        await line.send()
    assert caplog.text.count("head training is away") == 1
    door.open = True
    line.add(sample("still too many"))
    await line.send()
    line.add(sample("last"))
    await line.send()
    assert ids(door) == ["first", "s0", "s1", "s2", "last"]


async def test_answers_that_come_during_a_call_go_with_the_next(door):
    line, taken = SampleLine(door.connect), door.take

    async def meanwhile(batch):
        line.add(sample(f"after {len(door.batches)}"))
        await taken(batch)

    door.take = meanwhile
    line.add(sample("before"))
    await line.send()
    await line.send()
    assert set(ids(door)) == {"before", "after 0"}
