"""Which share of the bounds decoding has reached."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ops.bounds.figures import COMBINED, PROMPT, SCHEDULE
from ops.cli.boundary import InputError
from router.speedup import BASELINE, speedup

BOUNDS = (PROMPT, COMBINED, SCHEDULE)


def reached(decoded: Path, figures: Mapping[str, Any], ids: set[str]) -> dict[str, Any]:
    """By method of a `bench decode` of the same prompts: tokens/s after the first token over plain
    decoding's, and the share of the bounds that this is, over all and by domain. Raises InputError
    for other prompts."""
    measured = json.loads(decoded.read_text(encoding="utf-8"))
    if set(measured["settings"]["prompts"]["ids"]) != ids:
        raise InputError(f"--decoded: {decoded} is about other prompts; decode those of --ids")
    plain = measured["methods"].get(BASELINE)
    if plain is None or plain.get("decode_tokens_per_s") is None:
        raise InputError(f"--decoded: {decoded} has no {BASELINE} to be compared with")
    return {
        name: _shares(plain, found, figures)
        | {
            "by_domain": {
                domain: _shares(plain["by_domain"][domain], own, figures["by_domain"][domain])
                for domain, own in found.get("by_domain", {}).items()
                if domain in figures["by_domain"]
                and own.get("decode_tokens_per_s")
                and plain["by_domain"].get(domain, {}).get("decode_tokens_per_s")
            }
        }
        for name, found in measured["methods"].items()
        if found.get("decode_tokens_per_s")
    }


def _shares(
    plain: Mapping[str, Any], found: Mapping[str, Any], bounds: Mapping[str, Any]
) -> dict[str, float]:
    over = speedup(plain["decode_tokens_per_s"], found["decode_tokens_per_s"])
    return {"speedup": over, **{bound: over / bounds[bound] for bound in BOUNDS}}
