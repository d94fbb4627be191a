"""The application's configuration: validation, defaults, and what changes while it serves."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from schemas import AppConfig
from schemas.base import problems
from workers.bundle import load_bundle
from workers.portfolio import with_bundle, with_portfolio

LIVE_FIELDS = {
    "router": (
        "exploration",
        "default_method",
        "weights",
        "pinned_clusters",
    ),
    "http": ("max_body_bytes", "max_answer_seconds", "strict_fields"),
}
"""Fields that `changed` can change without a restart."""


class ConfigError(ValueError):
    """The application cannot be built from these args; the message names the field and the fix."""


def validated(args: AppConfig | Mapping[str, Any]) -> AppConfig:
    """Return the validated configuration. Raises ConfigError with one line per wrong field."""
    if isinstance(args, AppConfig):
        return args
    try:
        return AppConfig.model_validate(args)
    except ValidationError as error:
        raise ConfigError("; ".join(problems(error))) from error


def resolved(config: AppConfig) -> AppConfig:
    """Return the configuration with absolute paths, a present bundle and the methods it has parts
    for.

    Replicas run in other working directories. Raises ConfigError if the bundle is missing.
    """
    try:
        config = with_bundle(config)
        config = with_portfolio(config, load_bundle(config.bundle))
    except ValueError as error:
        raise ConfigError(str(error)) from error
    state = config.feedback.state_uri
    if "://" not in state:
        state = str(Path(state).absolute())
    feedback = config.feedback.model_copy(update={"state_uri": state})
    absolute: AppConfig = _absolute(config.model_copy(update={"feedback": feedback}))
    return absolute


def _absolute(value: Any) -> Any:
    """Return a setting with the paths in it absolute; the same object if they are."""
    if isinstance(value, Path):
        return value.absolute()
    if isinstance(value, dict):
        return {key: _absolute(one) for key, one in value.items()}
    if not isinstance(value, BaseModel):
        return value
    changes = {name: new for name, one in value if (new := _absolute(one)) != one}
    return value.model_copy(update=changes) if changes else value


def changed(config: AppConfig, changes: Mapping[str, Any] | None) -> AppConfig:
    """Return the configuration with other values of LIVE_FIELDS: `{"router": {"exploration":
    0.02}}`.

    Raises ConfigError naming the field that is unknown, wrong, or cannot be changed while the
    service runs.
    """
    changes = {} if changes is None else changes
    for section, fields in changes.items():
        known = LIVE_FIELDS.get(section)
        if known is None or not isinstance(fields, Mapping):
            sections = " and ".join(LIVE_FIELDS)
            raise ConfigError(f"{section}: user_config takes the sections {sections} with fields")
        for field in fields:
            if field not in known:
                raise ConfigError(
                    f"{section}.{field}: cannot change while the service runs; set it in args "
                    f"(these can: {', '.join(known)})"
                )
    body = config.model_dump()
    for section, fields in changes.items():
        body[section] |= fields
    return validated(body)


def live_fields(config: AppConfig) -> dict[str, dict[str, Any]]:
    """Return LIVE_FIELDS with the active values."""
    body = config.model_dump(mode="json")
    return {section: {f: body[section][f] for f in names} for section, names in LIVE_FIELDS.items()}


def check_clusters(config: AppConfig, clusters: int) -> None:
    """Raise ConfigError if a cluster is pinned that the routing table does not have."""
    for cluster in config.router.pinned_clusters:
        if cluster >= clusters:
            raise ConfigError(
                f"router.pinned_clusters: the table has clusters 0 to {clusters - 1}, not {cluster}"
            )
