"""Where configurations are written: a file of its own, Ray Serve's, a KubeRay manifest."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.common.boundary import InputError
from schemas import AppConfig
from schemas.yaml_files import parse_yaml, read_yaml
from workers.bundle import BundleError, load_bundle
from workers.portfolio import method_of, with_bundle, with_portfolio

BUILDERS = ("deployments.app:build", "deployments.app.build")


@dataclass(frozen=True)
class Written:
    """One configuration, and its place as messages name it."""

    place: str
    config: AppConfig


@dataclass(frozen=True)
class _Body:
    """Fields as they are written; overrides: the application's `deployments`."""

    place: str
    fields: Any
    overrides: list[dict[str, Any]]


def read_configs(file: Path) -> list[Written]:
    """Read every configuration in a file: the fields themselves, `args` of the applications of a
    Ray Serve configuration with the ingress's user_config, or those of a RayService's
    serveConfigV2.

    Raises ValueError naming the place and the field, also for what Ray Serve would refuse or
    ignore.
    """
    found = [
        _validated(body) for document in read_yaml(file) for body in _bodies(str(file), document)
    ]
    if not found:
        raise InputError(f"{file}: no configuration of ours in it")
    return found


def read_config(file: Path) -> AppConfig:
    """Read a file's only configuration. Raises ValueError if it has several."""
    found = read_configs(file)
    if len(found) > 1:
        raise InputError(f"{file}: has {len(found)} configurations; give a file with one")
    return found[0].config


def _bodies(place: str, document: Any) -> Iterator[_Body]:
    if not isinstance(document, dict):
        raise InputError(f"{place}: expected fields, such as bundle, methods")
    if "apiVersion" in document:
        yield from _of_manifest(place, document)
    elif "applications" in document:
        from ops.operate.serve_schema import check_serve_config

        check_serve_config(document, place)
        for application in document["applications"]:
            if application["import_path"] in BUILDERS:
                where = f"{place}: application {application.get('name', 'default')}"
                yield _Body(where, application.get("args", {}), application.get("deployments", []))
    else:
        yield _Body(place, document, [])


def _of_manifest(place: str, manifest: dict[str, Any]) -> Iterator[_Body]:
    if manifest.get("kind") != "RayService":
        return
    spec = manifest.get("spec")
    inner = spec.get("serveConfigV2") if isinstance(spec, dict) else None
    if inner is None:
        return  # a patch of the rest of it
    where = f"{place}: serveConfigV2"
    if not isinstance(inner, str):
        raise InputError(f"{where}: expected text with a Ray Serve configuration (`|-`)")
    for document in parse_yaml(inner, where):
        if not isinstance(document, dict) or "applications" not in document:
            raise InputError(f"{where}: applications: Field required")
        yield from _bodies(where, document)


def _validated(body: _Body) -> Written:
    from deployments.app import INGRESS
    from deployments.configuration import ConfigError, changed, validated

    place = body.place
    try:
        config = validated(body.fields)
        names = [override["name"] for override in body.overrides]
        _check_overrides(names, config, place)
        if INGRESS in names:
            place = f"{body.place}: user_config"
            config = changed(config, body.overrides[names.index(INGRESS)].get("user_config"))
    except ConfigError as error:
        raise InputError(f"{place}: {error}") from error
    return Written(body.place, config)


def _check_overrides(names: list[str], config: AppConfig, place: str) -> None:
    from deployments.app import deployment_names

    known = deployment_names(with_portfolio_here(config))
    for name in names:
        if name not in known:
            raise InputError(f"{place}: deployments: {name!r} is not one of {', '.join(known)}")
        if names.count(name) > 1:
            raise InputError(f"{place}: deployments: {name!r} is given twice")


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
