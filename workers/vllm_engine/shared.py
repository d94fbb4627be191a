"""Arguments of a vLLM engine that holds a target and several methods."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from schemas import MethodSpec
from schemas.config import DatastoreConfig
from workers.bundle import Bundle
from workers.drafting.acceptance import routed_shares
from workers.drafting.lookup.datastore import open_datastore
from workers.portfolio import ADAPTIVE, decodable, method_of
from workers.vllm_engine.drafting.portfolio import (
    KEY,
    PORTFOLIO,
    Drafting,
    Learned,
    Options,
    Portfolio,
)
from workers.vllm_engine.speculation import REJECTION_SAMPLE_METHODS, draft_tokens, verification
from workers.vllm_engine.speculation import speculative_config as own_config

HOSTS = ("mtp", "eagle3", "eagle", "draft_model")
"""Drafters with KV of their own. vLLM is configured with the first one of a portfolio, and so
reserves slots and captures hidden states for all."""

ALONE = ("parallel_drafting", "use_heterogeneous_vocab")
"""Settings of drafters that an engine of several methods cannot hold."""

HOSTED = (*HOSTS, "ngram", "suffix", "medusa")
"""Drafters that an engine of several methods can hold."""

WORKER = "workers.vllm_engine.drafting.worker.SharedWorker"
SCHEDULER = "workers.vllm_engine.drafting.scheduler.SharedScheduler"

TOKENS = "num_speculative_tokens"
VERIFICATION = "rejection_sample_method"


def speculative_config(specs: Sequence[MethodSpec], bundle: Bundle) -> dict[str, Any]:
    """Return the portfolio's AsyncEngineArgs.speculative_config.

    Raises ValueError naming methods that cannot share one engine, and what
    `speculation.speculative_config` raises.
    """
    portfolio = _portfolio(specs, bundle)
    tokens = max(drafting.tokens for drafting in portfolio.methods.values())
    if portfolio.host is not None:
        options = dict(portfolio.drafters[portfolio.host])
    else:
        options = {
            "method": "custom_class",
            "model": "workers.vllm_engine.drafting.hosting.NoProposer",
            VERIFICATION: next(
                REJECTION_SAMPLE_METHODS[s.verifier] for s in specs if s.drafter != "none"
            ),
        }
    return options | {TOKENS: tokens}


def additional_config(
    specs: Sequence[MethodSpec], bundle: Bundle, datastore: DatastoreConfig | None = None
) -> dict[str, Any]:
    """Return the portfolio's AsyncEngineArgs.additional_config; raises as `speculative_config`,
    and DatastoreError. datastore: where an adaptive method looks up."""
    portfolio = _portfolio(specs, bundle)
    if datastore is not None and portfolio.adaptive is not None:
        open_datastore(datastore, bundle)  # vLLM's processes would hide the error
        options = replace(portfolio.adaptive, stored=(datastore, bundle.tokenizer_hash))
        portfolio = replace(portfolio, adaptive=options)
    return {KEY: PORTFOLIO.dump_python(portfolio, mode="json")}


def engine_arguments() -> dict[str, Any]:
    """Return the fields of AsyncEngineArgs for any portfolio."""
    # vLLM's own scheduler schedules ahead only where all requests have the same number of draft
    # tokens.
    return {"worker_cls": WORKER, "scheduler_cls": SCHEDULER, "async_scheduling": False}


def shares(specs: Sequence[MethodSpec]) -> bool:
    """Return whether the methods need the shared worker. An adaptive method does, and so do several
    methods if at least one of them drafts."""
    drafters = {spec.drafter for spec in specs}
    return ADAPTIVE in drafters or (len(specs) > 1 and drafters != {"none"})


def cache_salt(spec: MethodSpec) -> str | None:
    """Return the cache salt that keeps a method's prompts apart in the prefix cache.

    Blocks computed for another drafter hold no KV of this one. Methods without KV share blocks.
    """
    return spec.drafter if spec.drafter in (*HOSTS, ADAPTIVE) else None


def _portfolio(specs: Sequence[MethodSpec], bundle: Bundle) -> Portfolio:
    drafting = [spec for spec in specs if spec.drafter != "none"]
    adaptive = [spec for spec in drafting if spec.drafter == ADAPTIVE]
    if len(adaptive) > 1:
        names = " and ".join(spec.name for spec in adaptive)
        raise ValueError(f"{names} cannot share one engine: one method in it chooses drafters")
    options = _adaptive(adaptive[0], bundle) if adaptive else None
    learned = [method_of(one.method, bundle) for one in options.learned] if options else []
    parts = list({s.name: s for s in (*drafting, *learned) if s.drafter != ADAPTIVE}.values())
    arguments = [_options(spec, bundle) for spec in parts]
    _check([*parts, *adaptive], [*arguments, *map(verification, adaptive)])
    drafters: dict[str, dict[str, Any]] = {}
    for spec, own in zip(parts, arguments, strict=True):
        known = drafters.setdefault(spec.drafter, own)
        known[TOKENS] = max(known[TOKENS], own[TOKENS])
    return Portfolio(
        methods={spec.name: Drafting(spec.drafter, draft_tokens(spec)) for spec in drafting},
        drafters=drafters,
        host=next((name for name in HOSTS if name in drafters), None),
        adaptive=options,
    )


def _adaptive(spec: MethodSpec, bundle: Bundle) -> Options:
    """Return the adaptive method's options. Raises ValueError for an unknown setting, and for
    learned drafters that are not methods of vLLM's."""
    settings = dict(spec.settings.get("drafter", {}))
    names = str(settings.pop("learned", "")).split(",")
    methods = [method_of(name, bundle) for name in names if name]
    other = [one.name for one in methods if one.engine != "vllm" or one.drafter == "none"]
    if other:
        raise ValueError(f"{spec.name}: learned: {other[0]} is not a method of vLLM that drafts")
    most, routing, learned = draft_tokens(spec), bundle.path / "routing", list[Learned]()
    for one in methods:
        if decodable(one, bundle):
            tokens = min(most, draft_tokens(one))
            usual = routed_shares(routing, one.name, tokens)
            learned.append(Learned(one.name, one.drafter, tokens, usual))
    try:
        return Options(tuple(learned), **settings)  # type: ignore[arg-type]
    except TypeError as error:
        raise ValueError(f"{spec.name}: drafter: {error}") from error


def _options(spec: MethodSpec, bundle: Bundle) -> dict[str, Any]:
    """Return a hosted method's speculative_config. Raises ValueError for a method that needs an
    engine of its own."""
    options = own_config(spec, bundle)
    assert options is not None
    own = {name for name in options if name in ALONE or (spec.drafter, name) == ("mtp", "model")}
    if spec.drafter not in HOSTED or own:
        reason = f"drafter {spec.drafter}" if not own else f"setting {min(own)}"
        raise ValueError(
            f"{spec.name} cannot share an engine, because of its {reason}: "
            "leave out layout: shared, or the method"
        )
    return options


def _check(specs: Sequence[MethodSpec], options: Sequence[dict[str, Any]]) -> None:
    """Raise ValueError for two methods that cannot share an engine."""
    every = list(zip(specs, options, strict=True))
    for (one, its), (other, others) in itertools.combinations(every, 2):
        reason = None
        if its[VERIFICATION] != others[VERIFICATION]:
            reason = f"it has one {VERIFICATION}, and theirs differ"
        elif one.drafter == other.drafter and its | {TOKENS: 0} != others | {TOKENS: 0}:
            reason = f"it holds one {one.drafter} drafter, and their settings of it differ"
        elif {one.drafter, other.drafter} in ({"mtp", "eagle"}, {"mtp", "eagle3"}):
            reason = "vLLM reads the target's hidden states for one of them only"
        if reason is not None:
            raise ValueError(f"{one.name} and {other.name} cannot share one engine: {reason}")
