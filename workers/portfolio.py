"""What a configuration leaves open: which bundle, and which methods it has the parts for."""

import logging
from pathlib import Path

from schemas import AppConfig, MethodDeployment, MethodSpec
from workers.bundle import Bundle, load_bundle
from workers.methods import get_method

log = logging.getLogger(__name__)

SMALL_DEMO = Path("bundles/demo")
"""Beside the default bundle, with all of its parts in the repository."""

PARTS = {"draft_model": "draft", "medusa": "medusa", "eagle": "eagle", "eagle3": "eagle3"}
"""By drafter the part that it reads, unless its settings name another."""
ADAPTIVE = "adaptive"
"""The drafter that chooses among others, and among look-ups unless its settings leave them out."""


def learned_methods(spec: MethodSpec) -> list[str]:
    """The methods among whose drafters an adaptive one chooses, as far as its settings name any."""
    named = str(spec.settings.get("drafter", {}).get("learned", ""))
    return [name for name in named.split(",") if name]


def part_of(spec: MethodSpec) -> str | None:
    """The bundle's part that a method drafts with; None where it drafts with none, or can do
    without."""
    settings = spec.settings.get("drafter", {})
    if spec.drafter == ADAPTIVE and settings.get("look_ups") is False:
        learned = learned_methods(spec)
        return part_of(get_method(learned[0])) if len(learned) == 1 else None
    usual = PARTS.get(spec.drafter)
    return usual and str(settings.get("part", usual))


def parts_of(spec: MethodSpec, bundle: Bundle) -> tuple[str, ...]:
    """All parts that a method drafts with in this bundle, which of several may have but some."""
    if spec.drafter != ADAPTIVE:
        part = part_of(spec)
        return () if part is None else (part,)
    parts = dict.fromkeys(part_of(method_of(name, bundle)) for name in learned_methods(spec))
    return tuple(part for part in parts if part is not None and bundle.has(part))


def decodable(spec: MethodSpec, bundle: Bundle) -> bool:
    """Whether the bundle has what the method cannot do without."""
    part = part_of(spec)
    return part is None or bundle.has(part)


def with_bundle(config: AppConfig) -> AppConfig:
    """The configuration with a bundle that can be decoded with: the one it names, or else the
    default one where its target is imported, or else the small demo. Raises BundleError where the
    default one's folder is none."""
    if "bundle" in config.model_fields_set or load_bundle(config.bundle).has("target"):
        return config
    log.warning(
        "The target of %s is not here (`specadapt bundle import %s` makes it of its package): "
        "the small demo, %s, takes its place. It shows the machinery; its answers make no sense.",
        *(config.bundle, config.bundle, SMALL_DEMO),
    )
    return config.model_copy(update={"bundle": SMALL_DEMO})


def with_portfolio(config: AppConfig, bundle: Bundle) -> AppConfig:
    """The configuration with methods that the bundle can decode with: those it names, or else the
    bundle's portfolio, or else of the default ones those whose parts are there; each as it is
    defined here, or else as the bundle has tuned it. Raises ValueError for an unknown one."""
    methods = config.methods
    if "methods" not in config.model_fields_set:
        names = bundle.portfolio or tuple(m.name for m in methods)
        here = (n for n in names if decodable(method_of(n, bundle), bundle))
        methods = tuple(MethodDeployment(name=n) for n in here)
    tuned = tuple(
        m.model_copy(update={"spec": bundle.methods[m.name]})
        if m.spec is None and m.name in bundle.methods
        else m
        for m in methods
    )
    return config.model_copy(update={"methods": tuned})


def method_of(name: str, bundle: Bundle) -> MethodSpec:
    """The method of a name as the bundle has tuned it, or else as it is registered; raises
    ValueError for an unknown name."""
    return bundle.methods.get(name) or get_method(name)
