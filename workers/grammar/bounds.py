"""Bounds of a grammar's size, checked before llguidance reads it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any
from urllib.parse import unquote

from schemas import Grammar
from workers.grammar.specification import GrammarError, parsed

MAX_BYTES = 256 * 1024
"""Bytes of a grammar's text; OpenAI takes 120,000 characters of names and values in a schema."""
MAX_NESTING = 100
"""Levels of objects and lists in a schema."""
MAX_DEPTH = 200
"""Levels from a schema's root to its deepest definition, references included. llguidance descends
one call per level."""
MAX_RULES = 1000
"""Rules and terminals of a Lark grammar."""

_DEFINITIONS = ("$defs", "definitions")
"""Keys whose schemas count where they are referred to."""
_RULE = re.compile(r"^[ \t]*[?!]*[A-Za-z_][^\n:|]*:", re.MULTILINE)


def check_size(grammar: Grammar) -> None:
    """Raise GrammarError if the text has more than MAX_BYTES."""
    size = len(grammar.text.encode(errors="surrogatepass"))
    if size > MAX_BYTES:
        raise GrammarError(f"it has {size} bytes; a grammar may have {MAX_BYTES}")


def check_bounds(grammar: Grammar) -> None:
    """Raise GrammarError if the grammar exceeds a bound, or is a schema that is not JSON."""
    check_size(grammar)
    if grammar.kind in ("lark", "gbnf"):
        found = _RULE.finditer(grammar.text)
        rules = sum(1 for _ in found) if grammar.kind == "lark" else grammar.text.count("::=")
        if rules > MAX_RULES:
            raise GrammarError(f"it has {rules} rules; a grammar may have {MAX_RULES}")
    if grammar.kind == "json_schema":
        _check_schema(parsed(grammar.text))


def _check_schema(schema: Any) -> None:
    """Walk the schema breadth first, without recursion. A definition counts where it is nearest to
    the root, so that recursive schemas have a finite depth."""
    level = [schema]
    for _ in range(MAX_NESTING):
        level = [child for node in level for child in _containers(node, ())]
    if level:
        raise GrammarError(f"it has more than {MAX_NESTING} nested levels")
    level, followed = [schema], set[str]()
    for _ in range(MAX_DEPTH):
        below = [child for node in level for child in _containers(node, _DEFINITIONS)]
        referred = {r for node in level if (r := _reference(node)) is not None} - followed
        followed |= referred
        below += [_resolved(schema, reference) for reference in referred]
        level = below
    if level:
        raise GrammarError(
            f"its references and nested schemas are more than {MAX_DEPTH} levels deep"
        )


def _containers(node: Any, without: Collection[str]) -> Iterable[Any]:
    """Yield the objects and lists in a node."""
    inside: Iterable[Any] = ()
    if isinstance(node, dict):
        inside = (value for key, value in node.items() if key not in without)
    elif isinstance(node, list):
        inside = node
    return (value for value in inside if isinstance(value, dict | list))


def _reference(node: Any) -> str | None:
    found = node.get("$ref") if isinstance(node, dict) else None
    return found if isinstance(found, str) and found.startswith("#") else None


def _resolved(schema: Any, reference: str) -> Any:
    """Return what a JSON pointer `#/...` refers to, or None."""
    node = schema
    for part in unquote(reference[1:]).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict):
            node = node.get(key)
        elif isinstance(node, list) and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        else:
            return None
    return node
