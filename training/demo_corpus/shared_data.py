"""The rows of ../shared/data: instructions of nine domains and dialogues."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from training.demo_corpus.rows import (
    DOMAINS,
    CorpusError,
    Message,
    Row,
    read_jsonl,
    single_turn,
)


def instruct_rows(shared: Path) -> Iterator[Row]:
    """Raises CorpusError when the file is missing or a row has an unknown domain."""
    path = shared / "data" / "instruct.jsonl"
    for value in read_jsonl(path):
        domain = str(value.get("domain"))
        if domain not in DOMAINS:
            raise CorpusError(f"{path}: domain {domain!r} is none of {', '.join(DOMAINS)}")
        prompt, response = str(value["prompt"]).strip(), str(value["response"]).strip()
        if prompt and response:
            source = f"instruct:{value['source']}"
            yield single_turn(str(value["id"]), domain, source, prompt, response)


def dialogue_rows(shared: Path) -> Iterator[Row]:
    """Conversations, cut after the last turn of the assistant."""
    for value in read_jsonl(shared / "data" / "dialogue.jsonl"):
        turns = value["turns"]
        if not isinstance(turns, list):
            raise CorpusError(f"dialogue.jsonl: turns of {value.get('id')} must be a list")
        messages: list[Message] = [
            {"role": str(turn["role"]), "content": str(turn["content"])} for turn in turns
        ]
        while messages and messages[-1]["role"] != "assistant":
            messages.pop()
        if messages and messages[0]["role"] == "user":
            yield {
                "id": str(value["id"]),
                "domain": "dialogue",
                "source": "dialogue:schema-guided",
                "messages": messages,
            }
