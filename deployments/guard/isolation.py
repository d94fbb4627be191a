"""Whose prompts and answers may speed up whose."""

from collections.abc import Iterable

from schemas import GuardConfig, MethodSpec
from schemas.keys import ApiKey, Isolation

PAST_ANSWERS = "max_cached_requests"
"""Setting of vLLM's suffix drafter: how many past answers, whoever's, it drafts from."""


def scope_of(key: ApiKey, isolation: Isolation) -> str:
    """The scope of a key's requests: what is kept of one is of use in its own scope alone. A key
    without a tenant has one of its own."""
    if isolation == "none":
        return ""
    shared = isolation == "tenant" and key.tenant is not None
    return f"tenant {key.tenant}" if shared else f"key {key.name}"


def check_isolation(guard: GuardConfig, specs: Iterable[MethodSpec]) -> None:
    """Raise ValueError for a method that would draft one scope's answers from another's."""
    if guard.isolated == "none":
        return
    for spec in specs:
        drafter = spec.settings.get("drafter", {})
        # our own engine's keeps the scopes apart
        if (spec.engine, spec.drafter) == ("vllm", "suffix") and drafter.get(PAST_ANSWERS) != 0:
            raise ValueError(
                f"http.guard.isolation: {guard.isolated} cannot be kept, since {spec.name} drafts "
                "from all past answers of its replica; give it "
                f"settings.drafter.{PAST_ANSWERS}: 0, leave it out, or set isolation: none if all "
                "keys may learn what the others asked"
            )
