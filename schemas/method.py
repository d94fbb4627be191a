"""A decoding method: a combination of registered parts."""

import hashlib
import json
from typing import Literal

from pydantic import Field

from schemas.base import Schema

Role = Literal["drafter", "tree", "stop", "verifier"]
PLAIN_METHODS = ("naive", "vllm_naive")
"""Plain decoding by our engine and by vLLM."""
Setting = bool | int | float | str | tuple[int, ...] | tuple[float, ...]


class MethodSpec(Schema):
    """Engine + drafter + tree + stop + verifier, with each part's settings by role."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    engine: Literal["torch", "vllm"] = "torch"
    drafter: str = "none"
    tree: str = "chain"
    stop: str = "fixed"
    verifier: str = "target_choice"
    lossless: bool
    source: str = Field(description="paper section, arXiv number or project the rule comes from")
    settings: dict[Role, dict[str, Setting]] = Field(default_factory=dict)

    def settings_hash(self) -> str:
        """Return twelve hex digits over everything that changes how the method decodes."""
        body = self.model_dump(mode="json", exclude={"source"})
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:12]
