"""How tests ask an ingress: prompts, answers and events of a stream, replicas that break."""

import asyncio
import time

from deployments.request.prompt import Prompt
from schemas import DecodeChunk, SamplingParams

HELLO = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}


def prompt(**fields):
    given = {
        "token_ids": tuple(range(20, 40)),
        "text": "Write a Python function that reverses a list.",
        "sampling": SamplingParams(max_tokens=12, ignore_eos=True),
    }
    return Prompt(**given | fields)


async def answered(ingress, asked):
    [answer] = await ingress.answerer.answers(asked)
    return answer


async def spoken(answer):
    return [chunk async for chunk in answer.chunks]


def events(response):
    lines = [line for line in response.text.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    return [line.removeprefix("data: ") for line in lines]


async def posted(ingress, path, asked):
    response = await ingress.http.post(path, json=asked)
    assert response.status_code == 200, response.text
    return response.json()


async def until(condition):
    deadline = time.monotonic() + 120.0
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        await asyncio.sleep(0.01)


def broken(error=None, after=0):
    """A replica that gives `after` chunks and then raises `error`, or ends without a word."""

    async def stream(request, _):
        for _ in range(after):
            yield DecodeChunk(request_id=request.request_id, text="x")
        if error is not None:
            raise error

    return stream
