"""Where configurations are written: a file of its own, Ray Serve's, a KubeRay manifest."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ops.cli.boundary import InputError
from schemas import AppConfig

BUILDER = "deployments.app:build"


@dataclass(frozen=True)
class Written:
    """One configuration, and its place as messages name it."""

    place: str
    config: AppConfig


@dataclass(frozen=True)
class _Body:
    """Fields as they are written; `live`: the ingress's user_config, which stands over them."""

    place: str
    fields: Any
    live: Any = None


def read_configs(file: Path) -> list[Written]:
    """Every configuration in a file: the fields themselves, `args` of the applications of a Ray
    Serve configuration with the ingress's user_config, or those of a RayService's serveConfigV2.
    Raises InputError naming the place and the field."""
    try:
        documents = [d for d in yaml.safe_load_all(file.read_text(encoding="utf-8")) if d]
    except yaml.YAMLError as error:
        raise InputError(f"{file}: not YAML: {error}") from error
    found = [
        Written(body.place, _validated(body))
        for document in documents
        for body in _bodies(str(file), document)
    ]
    if not found:
        raise InputError(f"{file}: no configuration of ours in it")
    return found


def read_config(file: Path) -> AppConfig:
    """The only configuration in a file; raises InputError where there are several."""
    found = read_configs(file)
    if len(found) > 1:
        raise InputError(f"{file}: has {len(found)} configurations; give a file with one")
    return found[0].config


def _bodies(place: str, document: Any) -> Iterator[_Body]:
    if not isinstance(document, dict):
        raise InputError(f"{place}: expected fields, such as bundle, methods")
    if "apiVersion" in document:
        inner = document.get("spec", {}).get("serveConfigV2")
        if document.get("kind") == "RayService" and isinstance(inner, str):
            yield from _bodies(f"{place}: serveConfigV2", yaml.safe_load(inner))
    elif "applications" in document:
        for application in document["applications"]:
            if application.get("import_path") == BUILDER:
                where = f"{place}: application {application.get('name', 'default')}"
                yield _Body(where, application.get("args", {}), _user_config(application))
    else:
        yield _Body(place, document)


def _user_config(application: dict[str, Any]) -> Any:
    from deployments.app import INGRESS

    deployments = application.get("deployments", [])
    return next((d.get("user_config") for d in deployments if d.get("name") == INGRESS), None)


def _validated(body: _Body) -> AppConfig:
    from deployments.configuration import ConfigError, changed, validated

    place = body.place
    try:
        config = validated(body.fields)
        if body.live is None:
            return config
        place = f"{body.place}: user_config"
        return changed(config, body.live)
    except ConfigError as error:
        raise InputError(f"{place}: {error}") from error
