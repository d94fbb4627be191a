"""The demo bundle and prompts of every domain, for real vLLM engines."""

import json
from pathlib import Path

import pytest
from conftest_bundle import DEMO

from workers.bundle import Bundle, load_bundle
from workers.chat_template import encode_chat

PROMPTS = Path(__file__).parents[3] / "ops" / "data" / "prompts.jsonl"


@pytest.fixture(scope="session")
def bundle() -> Bundle:
    return load_bundle(DEMO)


@pytest.fixture(scope="session")
def prompts(bundle: Bundle) -> list[list[int]]:
    """A prompt of every domain, in token ids."""
    rows = [json.loads(line) for line in PROMPTS.read_text().splitlines()]
    first = {row["domain"]: row["prompt"] for row in reversed(rows)}
    tokenizer = bundle.tokenizer()
    return [
        encode_chat(tokenizer, [{"role": "user", "content": p}], add_generation_prompt=True)
        for p in first.values()
    ]
