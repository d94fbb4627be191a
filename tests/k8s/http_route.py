"""A strict schema of the HTTPRoute fields that are used; there is none of the whole kind here."""

from typing import Any


def _fields(required: list[str], **fields: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": fields,
        "required": required,
        "additionalProperties": False,
    }


_TEXT = {"type": "string", "minLength": 1}
_PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
# Gateway API durations (GEP-2257).
_DURATION = {"type": "string", "pattern": r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"}
_PATH = _fields(
    ["type", "value"],
    type={"enum": ["Exact", "PathPrefix", "RegularExpression"]},
    value={"type": "string", "pattern": "^/"},
)
_RULE = _fields(
    ["backendRefs"],
    matches={"type": "array", "items": _fields([], path=_PATH)},
    timeouts=_fields([], request=_DURATION, backendRequest=_DURATION),
    backendRefs={
        "type": "array",
        "minItems": 1,
        "items": _fields(["name", "port"], name=_TEXT, port=_PORT),
    },
)

HTTP_ROUTE = _fields(
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "gateway.networking.k8s.io/v1"},
    kind={"const": "HTTPRoute"},
    metadata={"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"},
    spec=_fields(
        ["parentRefs", "rules"],
        parentRefs={
            "type": "array",
            "minItems": 1,
            "items": _fields(["name"], name=_TEXT, namespace=_TEXT, sectionName=_TEXT),
        },
        hostnames={"type": "array", "items": _TEXT},
        rules={"type": "array", "minItems": 1, "maxItems": 16, "items": _RULE},
    ),
)
"""What apiVersion gateway.networking.k8s.io/v1 says of these fields."""
