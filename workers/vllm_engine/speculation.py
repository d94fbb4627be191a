"""A method's parts as vLLM's speculative_config."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from schemas import MethodSpec
from schemas.method import Setting
from workers.batch_schedule import STOP
from workers.bundle import Bundle
from workers.portfolio import ADAPTIVE
from workers.vllm_engine.batch_schedule import most_draft_tokens

REJECTION_SAMPLE_METHODS = {"rejection": "standard", "block": "block"}
"""vLLM's names of verifiers."""

_Settings = Mapping[str, Setting]


def speculative_config(spec: MethodSpec, bundle: Bundle) -> dict[str, Any] | None:
    """Return vLLM's speculative_config for a method; None for plain decoding.

    Raises ValueError naming a part that vLLM lacks, and BundleError for a bundle without the
    drafter's weights.
    """
    if spec.drafter == "none":
        _check(spec, ("none", *_DRAFTERS))
        return None
    drafter = spec.settings.get("drafter", {})
    return {
        **verification(spec, ("none", *_DRAFTERS)),
        **_DRAFTERS[spec.drafter](bundle, drafter),
    }


def verification(spec: MethodSpec, drafters: Sequence[str] = (ADAPTIVE,)) -> dict[str, Any]:
    """Return how many tokens a method drafts and how they are verified. Raises ValueError naming
    a part that vLLM lacks."""
    _check(spec, drafters)
    return {
        "num_speculative_tokens": most_draft_tokens(spec),
        "rejection_sample_method": REJECTION_SAMPLE_METHODS[spec.verifier],
    }


def _check(spec: MethodSpec, drafters: Sequence[str]) -> None:
    verifiers = ("greedy",) if spec.drafter == "none" else tuple(REJECTION_SAMPLE_METHODS)
    admitted = {
        "drafter": drafters,
        "tree": ("chain",),
        "stop": ("fixed", STOP),
        "verifier": verifiers,
    }
    for role, names in admitted.items():
        if getattr(spec, role) not in names:
            raise ValueError(
                f"{spec.name}: vLLM has no {role} {getattr(spec, role)!r}: choose from "
                f"{', '.join(names)}"
            )


def _weights(method: str, part: str) -> Callable[[Bundle, _Settings], dict[str, Any]]:
    def settings(bundle: Bundle, _settings: _Settings) -> dict[str, Any]:
        return {"method": method, "model": str(bundle.part(part))}

    return settings


def _ngram(_bundle: Bundle, settings: _Settings) -> dict[str, Any]:
    return {
        "method": "ngram",
        "prompt_lookup_max": settings.get("max_n", 4),
        "prompt_lookup_min": settings.get("min_n", 2),
    }


def _suffix(_bundle: Bundle, settings: _Settings) -> dict[str, Any]:
    return {"method": "suffix"} | {f"suffix_decoding_{name}": v for name, v in settings.items()}


def _mtp(_bundle: Bundle, _settings: _Settings) -> dict[str, Any]:
    return {"method": "mtp"}


_DRAFTERS: dict[str, Callable[[Bundle, _Settings], dict[str, Any]]] = {
    "draft_model": _weights("draft_model", "draft"),
    "eagle": _weights("eagle", "eagle"),
    "eagle3": _weights("eagle3", "eagle3"),
    "medusa": _weights("medusa", "medusa"),
    "ngram": _ngram,
    "suffix": _suffix,
    "mtp": _mtp,
}
