"""The fields of a configuration with their effective values."""

from typing import Any

from schemas import AppConfig
from workers.bundle import BundleError, load_bundle
from workers.portfolio import method_of, with_bundle, with_portfolio


def with_portfolio_here(config: AppConfig) -> AppConfig:
    """Return the configuration with the bundle's methods, where the bundle is on this machine."""
    try:
        config = with_bundle(config)
        return with_portfolio(config, load_bundle(config.bundle))
    except BundleError:
        return config


def effective(config: AppConfig) -> dict[str, Any]:
    """Return all fields, with each method's specification.

    If the bundle is not on this machine, what it would add is left out.
    """
    config = with_portfolio_here(config)
    try:
        bundle = load_bundle(config.bundle)
    except BundleError:
        return config.model_dump(mode="json")
    methods = tuple(
        m.model_copy(update={"spec": m.spec or method_of(m.name, bundle)}) for m in config.methods
    )
    return config.model_copy(update={"methods": methods}).model_dump(mode="json")
