"""Strict schemas of what is deployed: KubeRay's, the Prometheus operator's and Kubernetes'."""

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from http_route import HTTP_ROUTE

ROOT = Path(__file__).parent.parent.parent
SHARED = ROOT.parent / "shared" / "schemas"
DEFINITIONS = SHARED / "kubernetes_v1.36.0_definitions.json"

CUSTOM = {"ray.io", "monitoring.coreos.com"}
_ANY = {"x-kubernetes-preserve-unknown-fields", "additionalProperties"}


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def strict(schema: Any) -> Any:
    """The schema with unknown fields refused: an API server would silently drop them."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and not _ANY & schema.keys():
        made["additionalProperties"] = False
    if made.pop("x-kubernetes-int-or-string", False):
        made["type"] = ["integer", "string"]
        made.pop("format", None)
    return made


@cache
def kubernetes() -> dict[str, Any]:
    definitions = json.loads(DEFINITIONS.read_text())["definitions"]
    made = {name: strict(schema) for name, schema in definitions.items()}
    quantity = "io.k8s.apimachinery.pkg.api.resource.Quantity"
    made[quantity] = {"type": ["string", "number"]}
    made["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] = {"type": ["string", "integer"]}
    return made


@cache
def custom(group: str, kind: str, version: str) -> dict[str, Any]:
    """The schema of a custom resource; pod templates in it are Kubernetes' own, strictly."""
    [resource] = documents(SHARED / f"{group}_{kind.lower()}s.yaml")
    [found] = [v for v in resource["spec"]["versions"] if v["name"] == version]
    schema = strict(found["schema"]["openAPIV3Schema"])
    # The bundled resource leaves metadata open, at the top and in pod templates.
    schema["properties"]["metadata"] = {
        "$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    }
    return schema


def schema_of(document: dict[str, Any]) -> dict[str, Any]:
    """The strict schema that a document's kind asks for."""
    group, _, version = document["apiVersion"].rpartition("/")
    if group in CUSTOM:
        schema = copy.copy(custom(group, document["kind"], version))
    elif document["kind"] == "HTTPRoute":
        schema = copy.copy(HTTP_ROUTE)
    else:
        [name] = [
            name
            for name, definition in kubernetes().items()
            for kind in definition.get("x-kubernetes-group-version-kind", ())
            if kind == {"group": group, "version": version, "kind": document["kind"]}
        ]
        schema = {"$ref": f"#/definitions/{name}"}
    return schema | {"definitions": kubernetes()}


def problems(document: dict[str, Any]) -> list[str]:
    """`path: message` for everything that is wrong with a document."""
    validator = jsonschema.Draft7Validator(schema_of(document))
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]
