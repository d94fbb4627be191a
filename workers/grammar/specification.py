"""Grammars in llguidance's dialect of Lark, which every engine takes, and bounds of their size."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Collection, Iterable
from itertools import product
from re import _constants as kinds  # type: ignore[attr-defined]
from re import _parser as patterns  # type: ignore[attr-defined]
from typing import Any
from urllib.parse import unquote

from llguidance import regex_to_lark
from llguidance.gbnf_to_lark import gbnf_to_lark

from schemas import Grammar

WHITESPACE = r"[ \n\t]{0,8}"
"""Bounded, since a model in a loop would otherwise put spaces until its tokens run out."""
OPTIONS = f"%llguidance {json.dumps({'no_forcing': True})}"
"""llguidance would otherwise follow text that must come, as far as it goes: forever behind the
`/b+/` of `start: /b+/ "b"`, in one mask."""


class GrammarError(ValueError):
    """The grammar is malformed, too large, or asks for what cannot be enforced."""


def lark(grammar: Grammar) -> str:
    """Return a grammar in Lark's notation. Raises GrammarError for a schema that is not a JSON
    object, and for text that is not GBNF."""
    return f"{_rules(grammar)}\n{OPTIONS}\n"  # the last options are those that hold


def parsed(schema: str) -> Any:
    """Return a schema's JSON. Raises GrammarError for text that is none."""
    try:
        return json.loads(schema)
    except RecursionError as error:
        raise GrammarError("its objects and lists are nested too deeply") from error
    except ValueError as error:
        raise GrammarError(f"the schema is not JSON: {error}") from error


def _rules(grammar: Grammar) -> str:
    if grammar.kind == "lark":
        return grammar.text
    if grammar.kind == "gbnf":
        try:
            return gbnf_to_lark(grammar.text)
        except Exception as error:  # its parser raises its own, and others where the text ends
            raise GrammarError(f"the grammar is not GBNF: {error}") from error
    if grammar.kind == "regex":
        # As llguidance's own: Unicode's \\d, \\w and \\s.
        return f"start: /{regex_to_lark(grammar.text, '')}/"
    return f"start: %json {json.dumps(json_schema(grammar))}"


def json_schema(grammar: Grammar) -> dict[str, Any]:
    """Return the schema of a grammar for JSON, with bounded spaces. Raises GrammarError for one
    that is not a JSON object."""
    schema = {"type": "object"} if grammar.kind == "json_object" else parsed(grammar.text)
    if not isinstance(schema, dict):
        raise GrammarError("the schema is not a JSON object")
    return spaced(schema)


def spaced(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that bounds the spaces between JSON's tokens and has a name behind every
    comma."""
    listed: dict[str, Any] = with_listed_names(schema)
    return listed | {"x-guidance": {"whitespace_pattern": WHITESPACE}}


MAX_NAMES = 1024
"""Names of a pattern. With so many properties llguidance takes no schema."""
MAX_LENGTH = 256
"""Characters of such a name."""
_VALUES = ("const", "default", "enum", "examples")
"""Keys with values of responses, which are no schemas."""
_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keys with schemas by names, which may be any."""
_BEGIN, _END = "\ue000", "\ue001"
"""Stand for the anchors."""
_CLASSES = {
    kinds.CATEGORY_DIGIT: string.digits,
    kinds.CATEGORY_WORD: string.digits + string.ascii_letters + "_",
}


class _ManyError(Exception):
    """There are more names than MAX_NAMES, or it is not known how many."""


def with_listed_names(schema: Any) -> Any:
    """Return a JSON schema whose `patternProperties` match infinitely many names each."""
    if isinstance(schema, list):
        return [with_listed_names(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _SCHEMAS and isinstance(value, dict):
            found[key] = {name: with_listed_names(one) for name, one in value.items()}
        else:
            found[key] = value if key in _VALUES else with_listed_names(value)
    kept, listed = found.get("patternProperties"), found.get("properties", {})
    if not isinstance(kept, dict) or not isinstance(listed, dict):
        return found
    few = {pattern: names for pattern in kept if (names := names_of(pattern)) is not None}
    if not few:
        return found
    listed = dict(listed)
    for pattern, names in few.items():
        for name in names:
            both = [listed[name]] if name in listed else []
            listed[name] = {"allOf": [*both, kept[pattern]]}
    kept = {pattern: of_names for pattern, of_names in kept.items() if pattern not in few}
    return found | {"properties": listed, "patternProperties": kept}


def names_of(pattern: str) -> list[str] | None:
    """Return the names that a pattern matches; None if they are many."""
    try:
        written = _texts(patterns.parse(pattern))
    except (_ManyError, re.error, OverflowError, RecursionError):
        return None
    names = dict[str, None]()
    for text in written:
        inside = text.lstrip(_BEGIN).rstrip(_END)
        if _BEGIN in inside or _END in inside:  # nothing matches this alternative
            continue
        if not (text.startswith(_BEGIN) and text.endswith(_END)):
            return None  # anything may stand around it
        names[inside] = None
    return list(names)


def _texts(parts: Iterable[Any]) -> list[str]:
    """Return all texts that a sequence of a parsed pattern matches, with their anchors."""
    found = [""]
    for kind, value in parts:
        found = _joined(found, _alternatives(kind, value))
    return found


def _alternatives(kind: Any, value: Any) -> list[str]:
    match kind:
        case kinds.LITERAL:
            return [chr(value)]
        case kinds.AT if value is kinds.AT_BEGINNING:
            return [_BEGIN]
        case kinds.AT if value is kinds.AT_END:
            return [_END]
        case kinds.IN if value[0][0] is kinds.NEGATE and _is_everything(value[1:]):
            return []
        case kinds.IN:
            return [char for item in value for char in _characters(*item)]
        case kinds.BRANCH:
            return [text for branch in value[1] for text in _texts(branch)]
        case kinds.SUBPATTERN if value[1:3] == (0, 0):
            return _texts(value[3])
        case kinds.MAX_REPEAT | kinds.MIN_REPEAT if value[1] <= MAX_NAMES:
            return _repeated(_texts(value[2]), *value[:2])
    raise _ManyError


def _is_everything(items: Iterable[Any]) -> bool:
    """Return whether a set holds a class of characters and all others."""
    classes = {str(value) for kind, value in items if kind is kinds.CATEGORY}
    return any(name.replace("CATEGORY_", "CATEGORY_NOT_") in classes for name in classes)


def _characters(kind: Any, value: Any) -> Iterable[str]:
    match kind:
        case kinds.LITERAL:
            return chr(value)
        case kinds.RANGE if value[1] - value[0] < MAX_NAMES:
            return map(chr, range(value[0], value[1] + 1))
        case kinds.CATEGORY if value in _CLASSES:
            return _CLASSES[value]
    raise _ManyError


def _repeated(texts: list[str], least: int, most: int) -> list[str]:
    longer = [""]
    for _ in range(least):
        longer = _joined(longer, texts)
    found = list(longer)
    for _ in range(most - least):
        longer = _joined(longer, texts)
        found += longer
        if len(found) > MAX_NAMES:
            raise _ManyError
    return found


def _joined(before: list[str], after: list[str]) -> list[str]:
    joined = product(before, after) if len(before) * len(after) <= MAX_NAMES else ()
    found = ["".join(pair) for pair in joined]
    if (before and after and not found) or any(len(text) > MAX_LENGTH for text in found):
        raise _ManyError
    return found


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
