"""The tokens that end an answer."""

from pathlib import Path
from typing import Any

from workers.bundle import BundleError, read_json

TURN_END = "<|end|>"


def end_tokens(target: Path, tokenizer: Any) -> frozenset[int]:
    """Return the ids that end an answer: of generation_config.json, else config.json; of the
    tokenizer; and `<|end|>` if the tokenizer has it. Raises BundleError for ids that are not
    numbers."""
    ids: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        file = target / name
        found = read_json(file) if file.is_file() else {}
        eos = found.get("eos_token_id")
        if eos is not None:
            given = eos if isinstance(eos, list) else [eos]
            if not all(type(one) is int for one in given):
                raise BundleError(f"{file}: eos_token_id is {eos!r}: expected token ids")
            ids.update(given)
            break
    if tokenizer.eos_token_id is not None:
        ids.add(tokenizer.eos_token_id)
    end = tokenizer.get_vocab().get(TURN_END)
    return frozenset(ids if end is None else ids | {end})
