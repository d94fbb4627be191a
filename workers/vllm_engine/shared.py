"""Arguments of one vLLM engine that holds several methods: a target, and drafters by request."""

from collections.abc import Sequence
from typing import Any

from schemas import MethodSpec
from workers.batch_schedule import STOP, BatchSchedule, whole_numbers
from workers.bundle import Bundle
from workers.vllm_engine.drafting.portfolio import KEY, Drafting, Portfolio
from workers.vllm_engine.speculation import speculative_config as own_config

HOSTS = ("mtp", "eagle3", "eagle", "draft_model")
"""Drafters with KV of their own. The first that a portfolio has is what vLLM is configured with:
it reserves the slots and captures the hidden states that the others use too."""

ENGINE_ARGUMENTS = {
    "worker_cls": "workers.vllm_engine.drafting.worker.SharedWorker",
    # vLLM schedules ahead only where every request has the same number of drafted tokens.
    "async_scheduling": False,
}
"""Further fields of AsyncEngineArgs for a portfolio that drafts."""


def speculative_config(specs: Sequence[MethodSpec], bundle: Bundle) -> dict[str, Any] | None:
    """The portfolio's AsyncEngineArgs.speculative_config; None where no method drafts.

    Raises ValueError naming the methods that cannot share one engine, and what
    `speculation.speculative_config` raises.
    """
    portfolio = _portfolio(specs, bundle)
    if not portfolio.methods:
        return None
    tokens = max(max(drafting.schedule.gammas) for drafting in portfolio.methods.values())
    if portfolio.host is None:
        options: dict[str, Any] = {
            "method": "custom_class",
            "model": "workers.vllm_engine.drafting.hosting.NoProposer",
            "rejection_sample_method": _one(specs, bundle, "rejection_sample_method"),
        }
    else:
        options = dict(portfolio.drafters[portfolio.host])
    return options | {"num_speculative_tokens": tokens}


def additional_config(specs: Sequence[MethodSpec], bundle: Bundle) -> dict[str, Any]:
    """The portfolio's AsyncEngineArgs.additional_config; raises as `speculative_config` does."""
    return {KEY: _portfolio(specs, bundle).to_config()}


def cache_salt(spec: MethodSpec) -> str | None:
    """What keeps a method's prompts apart in the prefix cache: blocks that were computed for
    another drafter hold no KV of this one. Methods without KV of their own share blocks."""
    return spec.drafter if spec.drafter in HOSTS else None


def _portfolio(specs: Sequence[MethodSpec], bundle: Bundle) -> Portfolio:
    drafting = [spec for spec in specs if spec.drafter != "none"]
    drafters: dict[str, dict[str, Any]] = {}
    named: dict[str, MethodSpec] = {}
    for spec in drafting:
        options = _options(spec, bundle)
        other = named.setdefault(spec.drafter, spec)
        known = drafters.setdefault(spec.drafter, options)
        tokens = "num_speculative_tokens"
        if {**known, tokens: 0} != {**options, tokens: 0}:
            raise ValueError(
                f"{other.name} and {spec.name} cannot share one engine: it holds one "
                f"{spec.drafter} drafter, and their settings of it differ"
            )
        known[tokens] = max(known[tokens], options[tokens])
    host = next((name for name in HOSTS if name in drafters), None)
    eagles = [spec for spec in drafting if spec.drafter in ("eagle", "eagle3")]
    if host == "mtp" and eagles:
        raise ValueError(
            f"{named['mtp'].name} and {eagles[0].name} cannot share one engine: vLLM reads the "
            "target's hidden states for one of them only"
        )
    _one(specs, bundle, "rejection_sample_method")
    methods = {spec.name: _drafting(spec, bundle) for spec in drafting}
    return Portfolio(methods, drafters, host)


def _options(spec: MethodSpec, bundle: Bundle) -> dict[str, Any]:
    options = own_config(spec, bundle)
    assert options is not None
    # vLLM's schedule is one for the engine; here each method has its own.
    options.pop("num_speculative_tokens_per_batch_size", None)
    return options


def _drafting(spec: MethodSpec, bundle: Bundle) -> Drafting:
    if spec.stop != STOP:
        tokens = _options(spec, bundle)["num_speculative_tokens"]
        return Drafting(spec.drafter, BatchSchedule((1,), (tokens,)))
    return Drafting(
        spec.drafter, BatchSchedule(_numbers(spec, "batches"), _numbers(spec, "gammas"))
    )


def _numbers(spec: MethodSpec, setting: str) -> tuple[int, ...]:
    values = spec.settings.get("stop", {}).get(setting)
    if not isinstance(values, tuple):
        raise ValueError(f"{spec.name}: stop '{STOP}': give {setting} as a list of numbers")
    return whole_numbers(values, setting)


def _one(specs: Sequence[MethodSpec], bundle: Bundle, option: str) -> Any:
    """The value of an option that vLLM has once for all of an engine's methods."""
    values: dict[Any, str] = {}
    for spec in specs:
        if spec.drafter != "none":
            values.setdefault(_options(spec, bundle).get(option), spec.name)
    if len(values) > 1:
        first, second = list(values.values())[:2]
        raise ValueError(
            f"{first} and {second} cannot share one engine: it has one {option}, and theirs differ"
        )
    return next(iter(values), None)
