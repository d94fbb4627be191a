"""Which methods a bundle has the parts for."""

from schemas import AppConfig, MethodSpec
from workers.bundle import Bundle
from workers.methods import get_method

PARTS = {"draft_model": "draft", "medusa": "medusa", "eagle": "eagle", "eagle3": "eagle3"}
"""By drafter the part that it reads, unless its settings name another."""


def part_of(spec: MethodSpec) -> str | None:
    """The bundle's part that a method drafts with; None where it drafts with none."""
    usual = PARTS.get(spec.drafter)
    return usual and str(spec.settings.get("drafter", {}).get("part", usual))


def with_portfolio(config: AppConfig, bundle: Bundle) -> AppConfig:
    """The configuration with methods that the bundle can decode with: those it names, or else of
    the default ones those whose parts are there."""
    if "methods" in config.model_fields_set:
        return config
    parts = {method.name: part_of(get_method(method.name)) for method in config.methods}
    kept = [m for m in config.methods if (part := parts[m.name]) is None or bundle.has(part)]
    return config.model_copy(update={"methods": tuple(kept)})
