"""A method's parts as vLLM's speculative_config."""

from collections.abc import Sequence
from typing import Any

from schemas import MethodSpec
from workers.bundle import Bundle
from workers.portfolio import ADAPTIVE, part_of

REJECTION_SAMPLE_METHODS = {"rejection": "standard", "traversal": "block"}
"""vLLM's names of verifiers: on its chains `traversal` is block verification."""


FIELDS: dict[str, dict[str, str]] = {
    "ngram": {"max_n": "prompt_lookup_max", "min_n": "prompt_lookup_min"},
    "suffix": {
        name: f"suffix_decoding_{name}"
        for name in ("max_tree_depth", "max_cached_requests", "max_spec_factor", "min_token_prob")
    },
    "draft_model": {name: name for name in ("use_heterogeneous_vocab", "parallel_drafting")},
    "eagle3": {"parallel_drafting": "parallel_drafting"},
    **{drafter: {} for drafter in ("medusa", "eagle", "dflash", "mtp")},
}
"""By drafter: fields of vLLM's SpeculativeConfig by the names of a method's settings."""

_DEFAULTS = {"ngram": {"max_n": 4, "min_n": 2}}

MTP_PART = "mtp"
"""The part with layers for multi-token prediction that are not in the target's checkpoint."""


def speculative_config(spec: MethodSpec, bundle: Bundle) -> dict[str, Any] | None:
    """Return vLLM's speculative_config for a method; None for plain decoding.

    Raises ValueError naming a part that vLLM lacks, and BundleError for a bundle without the
    drafter's weights.
    """
    if spec.drafter == "none":
        _check(spec, ("none", *FIELDS))
        return None
    return verification(spec, ("none", *FIELDS)) | _drafter(spec, bundle)


def verification(spec: MethodSpec, drafters: Sequence[str] = (ADAPTIVE,)) -> dict[str, Any]:
    """Return how many tokens a method drafts and how they are verified. Raises ValueError naming
    a part that vLLM lacks."""
    _check(spec, drafters)
    return {
        "num_speculative_tokens": draft_tokens(spec),
        "rejection_sample_method": REJECTION_SAMPLE_METHODS[spec.verifier],
    }


def draft_tokens(spec: MethodSpec) -> int:
    """Return a method's draft tokens per step. Raises ValueError for a method that never drafts."""
    tokens = int(spec.settings.get("stop", {}).get("gamma", 4))  # type: ignore[arg-type]
    if tokens < 1:
        raise ValueError(f"{spec.name}: give a gamma above 0, or use vllm_naive")
    return tokens


def _check(spec: MethodSpec, drafters: Sequence[str]) -> None:
    verifiers = ("target_choice",) if spec.drafter == "none" else tuple(REJECTION_SAMPLE_METHODS)
    admitted = {
        "drafter": drafters,
        "tree": ("chain",),
        "stop": ("fixed",),
        "verifier": verifiers,
    }
    for role, names in admitted.items():
        if getattr(spec, role) not in names:
            raise ValueError(
                f"{spec.name}: vLLM has no {role} {getattr(spec, role)!r}: choose from "
                f"{', '.join(names)}"
            )


def _drafter(spec: MethodSpec, bundle: Bundle) -> dict[str, Any]:
    fields = FIELDS[spec.drafter]
    settings = _DEFAULTS.get(spec.drafter, {}) | spec.settings.get("drafter", {})
    settings.pop("part", None)
    if unknown := sorted(settings.keys() - fields.keys()):
        raise ValueError(
            f"{spec.name}: {spec.drafter} has no setting {unknown[0]!r}: "
            f"choose from {', '.join(sorted(fields)) or 'none'}"
        )
    part = part_of(spec)
    if spec.drafter == "mtp" and bundle.has(MTP_PART):
        part = MTP_PART
    weights = {} if part is None else {"model": str(bundle.part(part))}
    passed_on = {fields[name]: value for name, value in settings.items()}
    return {"method": spec.drafter, **weights, **passed_on}
