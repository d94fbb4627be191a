"""Defaults of a configuration: the bundle, and the methods that it has the parts for."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from schemas import AppConfig, HeadPart, MethodDeployment, MethodSpec
from workers.bundle import Bundle, load_bundle
from workers.methods import get_method

log = logging.getLogger(__name__)

SMALL_DEMO = Path("bundles/demo")
"""The bundle that is complete in the repository, for use without the default one."""

PARTS = {"draft_model": "draft"} | {head: head for head in ("medusa", "eagle", "eagle3", "dflash")}
"""The part that each drafter reads, unless its settings name another."""
LOOK_UPS = ("ngram", "suffix")
"""The drafters that only look up."""
ADAPTIVE = "adaptive"
"""The drafter that chooses among others and look-ups."""
GROWN = "eagle3"
"""The head that a service makes for a bundle without one."""


def learned_methods(spec: MethodSpec) -> list[str]:
    """Return the methods whose drafters an adaptive one chooses among, as its settings name
    them."""
    named = str(spec.settings.get("drafter", {}).get("learned", ""))
    return [name for name in named.split(",") if name]


def part_of(spec: MethodSpec) -> str | None:
    """Return the bundle's part that a method drafts with; None where it needs none."""
    settings = spec.settings.get("drafter", {})
    if spec.drafter == ADAPTIVE and settings.get("look_ups") is False:
        learned = learned_methods(spec)
        return part_of(get_method(learned[0])) if len(learned) == 1 else None
    usual = PARTS.get(spec.drafter)
    return usual and str(settings.get("part", usual))


def parts_of(spec: MethodSpec, bundle: Bundle) -> tuple[str, ...]:
    """Return all parts of this bundle that a method drafts with."""
    if spec.drafter != ADAPTIVE:
        part = part_of(spec)
        return () if part is None else (part,)
    learned = [method_of(name, bundle) for name in learned_methods(spec)]
    parts = dict.fromkeys(part_of(one) for one in learned if decodable(one, bundle))
    return tuple(part for part in parts if part is not None)


def exchanged_parts(specs: Sequence[MethodSpec], bundle: Bundle) -> dict[str, tuple[HeadPart, ...]]:
    """Return by method the heads that an engine with these methods exchanges while it serves.

    vLLM's engine does so if it hosts several methods or an adaptive one.
    """
    alone = len(specs) == 1 and specs[0].drafter != ADAPTIVE
    if alone and specs[0].engine == "vllm":
        return {}
    known = get_args(HeadPart)
    return {
        spec.name: tuple(part for part in known if part in parts_of(spec, bundle)) for spec in specs
    }


def decodable(spec: MethodSpec, bundle: Bundle) -> bool:
    """Return whether the bundle has the parts that the method needs, or grows them."""
    part = part_of(spec)
    return part is None or bundle.has(part) or grows(part, spec, bundle)


def grows(part: str, spec: MethodSpec, bundle: Bundle) -> bool:
    """Return whether a method begins without its head, which its engine can gain while it runs."""
    return spec.engine == "torch" and part in bundle.growing


def served_bundle(config: AppConfig) -> Bundle:
    """Load a configuration's bundle. A service that trains heads grows GROWN where it is not named
    in bundle.json. Raises BundleError as `load_bundle` does."""
    bundle = load_bundle(config.bundle)
    if not config.feedback.drafter_training or GROWN in bundle.parts:
        return bundle
    return replace(bundle, growing=frozenset({GROWN}))


def copies_predictions(spec: MethodSpec) -> bool:
    """Return whether a method drafts from the text that a request predicts. vLLM's own look-ups do
    not."""
    if spec.drafter == ADAPTIVE:
        return spec.settings.get("drafter", {}).get("look_ups") is not False
    return spec.engine == "torch" and spec.drafter in LOOK_UPS


def with_bundle(config: AppConfig) -> AppConfig:
    """Return the configuration with a bundle: the named one, else the default if its target is
    imported, else the small demo. Raises BundleError where the default's folder is missing."""
    if "bundle" in config.model_fields_set or load_bundle(config.bundle).has("target"):
        return config
    log.warning(
        "The target of %s is not imported; run `specadapt bundle import %s`. "
        "Using the small demo, %s, whose answers make no sense.",
        *(config.bundle, config.bundle, SMALL_DEMO),
    )
    return config.model_copy(update={"bundle": SMALL_DEMO})


def with_portfolio(config: AppConfig, bundle: Bundle) -> AppConfig:
    """Return the configuration with methods that the bundle can decode: the named ones, else the
    bundle's portfolio with its weights, else the default ones whose parts exist; each as the
    configuration defines it, else as the bundle tuned it. Raises ValueError for an unknown one."""
    methods, changed = config.methods, dict[str, Any]()
    if "methods" not in config.model_fields_set:
        names = bundle.portfolio or tuple(m.name for m in methods)
        here = [n for n in names if decodable(method_of(n, bundle), bundle)]
        methods = tuple(MethodDeployment(name=n) for n in here)
        weights = {name: bundle.weights[name] for name in here if name in bundle.weights}
        if weights and "weights" not in config.router.model_fields_set:
            changed["router"] = config.router.model_copy(update={"weights": weights})
    tuned = tuple(
        m.model_copy(update={"spec": bundle.methods[m.name]})
        if m.spec is None and m.name in bundle.methods
        else m
        for m in methods
    )
    return config.model_copy(update=changed | {"methods": tuned})


def method_of(name: str, bundle: Bundle) -> MethodSpec:
    """Return a method by name, as the bundle tuned it or else as registered. Raises ValueError
    for an unknown name."""
    return bundle.methods.get(name) or get_method(name)
