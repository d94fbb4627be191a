"""Which requests share prefix caches, past answers and conversations."""

from collections.abc import Iterable

from schemas import EngineConfig, GuardConfig, MethodSpec
from schemas.keys import ApiKey, Isolation
from workers.refusal import PAST_ANSWERS, keeps_every_answer

KINDS: dict[Isolation, tuple[str, ...]] = {
    "none": (),
    "tenant": ("tenant", "key"),
    "key": ("key",),
}
"""Kinds of scopes that requests have under an isolation."""


def scope_of(key: ApiKey, isolation: Isolation) -> str:
    """Return the scope of a key's requests.

    Requests share caches and past answers within a scope only. A key without a tenant has its own.
    """
    if isolation == "none":
        return ""
    shared = isolation == "tenant" and key.tenant is not None
    return f"tenant {key.tenant}" if shared else f"key {key.name}"


def check_isolation(guard: GuardConfig, specs: Iterable[MethodSpec], engine: EngineConfig) -> None:
    """Raise ValueError for a method that would draft one scope's answers from another's, and for
    scopes of the datastore that no request has."""
    store = engine.datastore
    for scope in () if store is None or store.scopes is None else store.scopes:
        if scope.split()[0] not in KINDS[guard.isolated]:
            raise ValueError(
                f"engine.datastore.scopes: no request has the scope {scope!r}, since "
                f"http.guard.isolation is {guard.isolated}: set it to {scope.split()[0]}, or leave "
                "the scope out"
            )
    if guard.isolated == "none":
        return
    for spec in specs:
        if keeps_every_answer(spec, elsewhere=engine.openai is not None):
            setting = (
                f"set its settings.drafter.{PAST_ANSWERS}: 0, " if engine.openai is None else ""
            )
            raise ValueError(
                f"http.guard.isolation: {guard.isolated} is not possible: {spec.name} drafts from "
                f"all past answers of its replica; {setting}remove the method, or set "
                "isolation: none if keys may learn what others asked"
            )
