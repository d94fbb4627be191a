"""Which text was drafted, as a client sees it; the plane the clusters are drawn on."""

import json
import re
from pathlib import Path
from typing import get_args

import pytest

import deployments.web
from deployments.api.replies import DraftedRuns
from schemas import DecodeChunk
from schemas.observation import Reason

HELLO = {"model": "tiny", "messages": [{"role": "user", "content": "hello there"}]}


class Letters:
    """A tokenizer's tokens by themselves: token i is the i-th of these."""

    PIECES = (b" a", b"b", b"\xc3", b"\xa9", b"<eos>")

    def raw(self, token):
        return self.PIECES[token]

    def is_special(self, token):
        return token == 4


def chunk(text, *said):
    tokens, drafted = zip(*said, strict=True)
    return DecodeChunk(request_id="r", text=text, token_ids=tokens, drafted=drafted)


def test_neighbours_join_and_a_split_character_goes_to_the_token_that_completes_it():
    runs = DraftedRuns(Letters())
    assert runs.of(chunk(" ab", (0, True), (1, True), (2, True))) == [(" ab", True)]
    assert runs.of(chunk("éb", (3, False), (1, True), (4, True))) == [("é", False), ("b", True)]


def test_the_first_words_space_is_left_out_where_the_response_leaves_it_out():
    assert DraftedRuns(Letters()).of(chunk("a a", (0, False), (0, True))) == [
        ("a", False),
        (" a", True),
    ]


async def streamed(ingress, model, **options):
    asked = HELLO | {"model": model, "stream": True, "max_tokens": 24, "temperature": 0}
    response = await ingress.http.post(
        "/v1/chat/completions", json=asked | {"stream_options": {"include_usage": True, **options}}
    )
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    return [json.loads(line) for line in lines if line != "[DONE]"]


@pytest.mark.parametrize("method", ["naive", "draft_verify", "ngram"])
async def test_the_stream_says_which_text_was_drafted(ingress, method):
    events = await streamed(ingress, f"tiny:{method}", include_drafted=True)
    choices = [choice for event in events for choice in event["choices"]]
    runs = [run for choice in choices for run in choice.get("drafted", [])]
    text = "".join(choice["delta"].get("content", "") for choice in choices)
    assert text
    assert "".join(run[0] for run in runs) == text
    accepted = events[-1]["usage"]["speculative"]["accepted_tokens"]
    assert any(drafted for _, drafted in runs) == (accepted > 0)
    assert not all(drafted for _, drafted in runs)
    events = await streamed(ingress, f"tiny:{method}")
    assert not any("drafted" in choice for event in events for choice in event["choices"])


@pytest.mark.parametrize("name", ["style.css", "page.js"])
async def test_the_pages_parts_are_served_and_nothing_beside_them(ingress, name):
    response = await ingress.http.get(f"/web/{name}")
    assert response.status_code == 200
    assert response.headers["cache-control"] == "no-cache"
    for path in ("/web/nothing.js", "/web/..%2Fingress.py", "/web/ingress.py"):
        assert (await ingress.http.get(path)).status_code == 404


def test_the_page_has_words_for_every_reason():
    [folder] = deployments.web.__path__
    [listed] = re.findall(r"REASONS = \{(.*?)\n\}", Path(folder, "answer.js").read_text(), re.S)
    assert set(re.findall(r"^\s*(\w+):", listed, re.M)) == set(get_args(Reason))
