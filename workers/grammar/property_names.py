"""Patterns of properties' names that match finitely many names, written as properties.

llguidance takes the names among `properties` from those that a pattern matches. Where none is left,
it still allows a comma, behind which no name can follow. Listed names have no such comma, and mean
the same.
"""

import re
import string
from collections.abc import Iterable
from itertools import product
from re import _constants as kinds  # type: ignore[attr-defined]
from re import _parser as patterns  # type: ignore[attr-defined]
from typing import Any

MAX_NAMES = 1024
"""Names of a pattern. With so many properties llguidance takes no schema."""
MAX_LENGTH = 256
"""Characters of such a name."""
_VALUES = ("const", "default", "enum", "examples")
"""Keys with values of answers, which are no schemas."""
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
    found = {
        key: value if key in _VALUES else with_listed_names(value) for key, value in schema.items()
    }
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
