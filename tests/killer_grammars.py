"""Grammars that overflow stacks, take long or have no sentence."""

import json
from collections.abc import Callable
from typing import Any

_LINKS = 2500
_RULES = "".join(f"r{i}: r{i + 1}\n" for i in range(_LINKS))


def killer(number: int) -> dict[str, str]:
    """Return the `grammar` field of a request; ten numbers in a row have ten kinds of harm."""
    schemas: list[Callable[[], dict[str, Any]]] = [
        lambda: _chain(lambda ref: {"$ref": ref}),
        lambda: _chain(lambda ref: {"type": "array", "items": {"$ref": ref}}),
        lambda: _chain(lambda ref: {"anyOf": [{"type": "null"}, {"$ref": ref}]}),
        lambda: {"enum": [f"{i:012}" for i in range(100_000)]},
        lambda: {"$ref": "#"},
    ]
    others = [
        ("lark", f"start: r0\n{_RULES}r{_LINKS}: "),
        ("lark", "start: start "),
        ("lark", "start: /[0-9]{3}/ T\nT: /b/ & "),
        ("lark", "start: /b+/ /b/ "),
        ("regex", "(a{1000}){1000}"),
    ]
    which = number % (len(schemas) + len(others))
    if which < len(schemas):
        schema = {"title": str(number), **schemas[which]()}
        return {"kind": "json_schema", "text": json.dumps(schema)}
    kind, text = others[which - len(schemas)]
    return {"kind": kind, "text": text + (f'"{number}"' if kind == "lark" else str(number))}


def _chain(link: Callable[[str], Any]) -> dict[str, Any]:
    definitions = {f"d{i}": link(f"#/$defs/d{i + 1}") for i in range(_LINKS)}
    return {"$defs": {**definitions, f"d{_LINKS}": {"type": "string"}}, "$ref": "#/$defs/d0"}
