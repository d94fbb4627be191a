"""Prompts cut out of the corpus: what the demo's routing table is profiled and fitted on."""

import json
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from training.corpus import Row, read_rows
from workers.bundle import Bundle
from workers.chat_template import encode_text

REFERENCE_TOKENS = range(8, 201)
PROMPT_TOKENS = 1024


def write_prompts(
    bundle: Bundle, corpus: Path, split: str, per_domain: int | None, out: Path
) -> int:
    """Write up to `per_domain` prompts of each domain (None: all); return their number.

    A conversation is cut before one of its answers, drawn by the row's id. Prompts whose reference
    answer has fewer than 8 or more than 200 tokens are left out.
    """
    tokenizer = bundle.tokenizer()
    by_domain: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in read_rows(corpus / f"{split}.jsonl"):
        if (prompt := _cut(row, tokenizer)) is not None:
            by_domain[row["domain"]].append(prompt)
    out.parent.mkdir(parents=True, exist_ok=True)
    chosen = list(_equal(by_domain, per_domain))
    out.write_text("".join(json.dumps(p) + "\n" for p in chosen), encoding="utf-8")
    return len(chosen)


def _cut(row: Row, tokenizer: Any) -> dict[str, Any] | None:
    messages = row["messages"]
    answers = [i for i, m in enumerate(messages) if m["role"] == "assistant" and i > 0]
    at = random.Random(row["id"]).choice(answers)
    reference = messages[at]["content"]
    before = sum(len(m["content"]) for m in messages[:at])
    # a character is at least a fifth of a token here, so most long prompts need no tokenizer
    if before > 5 * PROMPT_TOKENS or len(encode_text(tokenizer, reference)) not in REFERENCE_TOKENS:
        return None
    return {
        "id": row["id"],
        "domain": row["domain"],
        "messages": list(messages[:at]),
        "response": reference,
    }


def _equal(
    by_domain: dict[str, list[dict[str, Any]]], per_domain: int | None
) -> Iterator[dict[str, Any]]:
    for domain in sorted(by_domain):
        members = by_domain[domain]
        random.Random(f"prompts {domain}").shuffle(members)
        yield from members[:per_domain]
