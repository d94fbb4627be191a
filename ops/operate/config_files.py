"""Where configurations are written: a file of its own, Ray Serve's, a KubeRay manifest."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from ray.runtime_env import RuntimeEnv
from ray.serve.schema import ServeDeploySchema

from deployments.app import INGRESS, deployment_names
from deployments.configuration import ConfigError, changed, validated
from ops.common.boundary import InputError, describe
from schemas import AppConfig
from schemas.base import MISREAD, misread
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


def check_serve_config(document: dict[str, Any], place: str) -> None:
    """Refuse what `serve deploy` would refuse, and fields that it would ignore.

    Raises InputError naming every field that is wrong.
    """
    wrong = list(_taken_wrongly(ServeDeploySchema, document))
    try:
        # Not the parsed document itself: validators of Ray change their input.
        ServeDeploySchema.model_validate(deepcopy(document))
    except ValidationError as error:
        wrong.append(describe(error))
    if not wrong:
        wrong += _wrong_environments(document)
        wrong += _unreachable(document)
    if wrong:
        raise InputError(f"{place}: {'; '.join(wrong)}")


def _unreachable(document: dict[str, Any]) -> Iterator[str]:
    """Yield a proxy_location with which requests find no proxy. k8s/base leaves the head out of the
    service, and on one machine EveryNode is the same as HeadOnly."""
    location = document.get("proxy_location", "EveryNode")
    if location != "EveryNode":
        yield f"proxy_location: {location} leaves workers without a proxy: set EveryNode"


def _taken_wrongly(annotation: Any, value: Any, path: str = "") -> Iterator[str]:
    """Yield what Ray's models ignore, or take for something else: unknown fields, and true or false
    for a number."""
    if isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _taken_wrongly(annotation, entry, f"{path}[{_name(entry, index)}]")
    elif misread(annotation, value):
        yield f"{path}: {MISREAD}"
    elif isinstance(value, dict) and (model := _model(annotation)):
        aliases = {field.alias: name for name, field in model.model_fields.items() if field.alias}
        for key, entry in value.items():
            where = f"{path}.{key}" if path else str(key)
            field = model.model_fields.get(aliases.get(key) or key)
            if field is None:
                yield f"{where}: unknown field"
            else:
                yield from _taken_wrongly(field.annotation, entry, where)


def _model(annotation: Any) -> type[BaseModel] | None:
    """Return the model that a mapping is read as: the first one in a list or a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model, get_args(annotation))), None)


def _name(entry: Any, index: int) -> Any:
    """Return the name of a list's entry for messages, or its index."""
    return entry.get("name", index) if isinstance(entry, dict) else index


def _wrong_environments(document: dict[str, Any]) -> Iterator[str]:
    """Yield errors in runtime environments, which Ray would report only when it starts them."""
    for path, environment in _environments(document):
        if unknown := environment.keys() - RuntimeEnv.known_fields:
            yield f"{path}.{min(map(str, unknown))}: unknown field"
        try:
            RuntimeEnv(**environment)
        except (TypeError, ValueError) as error:
            yield f"{path}: {error}"


def _environments(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _environments(entry, f"{path}[{_name(entry, index)}]")
    elif isinstance(value, dict):
        for key, entry in value.items():
            where = f"{path}.{key}" if path else str(key)
            if key == "runtime_env" and isinstance(entry, dict):
                yield where, entry
            elif key not in ("args", "user_config"):
                yield from _environments(entry, where)
