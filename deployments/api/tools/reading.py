"""Reading tool calls out of text, character by character.

A reader is a generator: it takes the next character by `yield`, returns when the calls have ended,
and raises MalformedError at the first character that cannot belong to one.
"""

import json
from collections.abc import Callable, Generator
from typing import NamedTuple, TypeVar

import pydantic_core

Value = TypeVar("Value")
Reader = Generator[None, str, Value]

_SPACES = " \t\r\n"
_LITERALS = frozenset("+-.0123456789aeflnrstuE")
"""Characters of numbers, true, false and null."""
_ARGUMENTS = ("arguments", "parameters")
_IGNORED = ("type", "id")
_MAX_NAME = 256
_MAX_NESTING = 100


class MalformedError(ValueError):
    """The text is not a call."""


class Events(NamedTuple):
    """Take what a reader finds: the function's name, parts of its arguments, and the call's end.

    `start` and `complete` raise MalformedError for an unknown function and for what is not JSON.
    """

    start: Callable[[str], None]
    arguments: Callable[[str], None]
    complete: Callable[[], None]


def json_calls(events: Events, language: bool) -> Reader[None]:
    """Read an object or a list of objects with a name and arguments.

    language: whether a word may stand before it, as after the beginning of a fence.
    """
    char = yield
    while language and (char.isalnum() or char == "_"):
        char = yield
    char = yield from _visible(char)
    if char == "[":
        yield from _rest_of_list(events)
    else:
        yield from _object(char, events)


def named_calls(events: Events) -> Reader[None]:
    """Read a list of objects, or a name and its arguments side by side: `name{...}`,
    `name[ARGS]{...}`, `name[CALL_ID]id[ARGS]{...}`."""
    char = yield from _next_visible()
    if char == "[":
        yield from _rest_of_list(events)
        return
    name = ""
    while char not in "{[":
        name += char
        if len(name) > _MAX_NAME:
            raise MalformedError
        char = yield
    while char != "{":  # [ARGS], or [CALL_ID], the id and [ARGS]
        char = yield
    if not name.strip():
        raise MalformedError
    events.start(name.strip())
    yield from _container(char, events.arguments)
    events.complete()


def _rest_of_list(events: Events) -> Reader[None]:
    separator = ","
    while separator == ",":
        yield from _object((yield from _next_visible()), events)
        separator = yield from _next_visible()
    _expect(separator, "]")


def _object(char: str, events: Events) -> Reader[None]:
    """Read one call. It begins with its arguments, which are held if they come before the name."""
    _expect(char, "{")
    name: str | None = None
    held: str | None = None
    begun = False
    separator = ","
    while separator == ",":
        key = yield from _string((yield from _next_visible()))
        _expect((yield from _next_visible()), ":")
        char = yield from _next_visible()
        if key == "name" and name is None:
            name = yield from _string(char)
            char = yield
        elif key in _ARGUMENTS and name is not None and char == "{" and not begun:
            events.start(name)
            begun = True
            yield from _container(char, events.arguments)
            char = yield
        elif key in _ARGUMENTS:
            held, char = yield from _value(char)
        elif key in _IGNORED:
            _, char = yield from _value(char)
        else:
            raise MalformedError
        separator = yield from _visible(char)
    _expect(separator, "}")
    if name is None:
        raise MalformedError
    if not begun:
        arguments = _as_object(held)
        events.start(name)
        events.arguments(arguments)
    events.complete()


def _as_object(value: str | None) -> str:
    """Return arguments that did not come as an object behind the name: as text, null or not at
    all."""
    if value is None or value == "null":
        return "{}"
    if value.startswith('"'):
        value = str(loaded(value))
    if not isinstance(loaded(value), dict):
        raise MalformedError
    return value


def loaded(text: str) -> object:
    """Return the value of JSON that a response can hold. Raises MalformedError for other text, such
    as a lone surrogate, NaN, or a number that overflows."""
    try:
        value = pydantic_core.from_json(text, allow_inf_nan=False)
        json.dumps(value, allow_nan=False)  # 1e999 is read as infinity
    except ValueError as error:
        raise MalformedError from error
    return value


def _value(char: str) -> Reader[tuple[str, str]]:
    """Read any JSON value. Return its text and the character after it."""
    parts: list[str] = []
    if char == '"':
        yield from _quoted(char, parts.append)
        return "".join(parts), (yield)
    if char in "{[":
        yield from _container(char, parts.append)
        return "".join(parts), (yield)
    while char in _LITERALS:
        parts.append(char)
        char = yield
    if not parts:
        raise MalformedError
    return "".join(parts), char


def _container(char: str, add: Callable[[str], None]) -> Reader[None]:
    """Read an object or a list to its end, which nesting and strings determine."""
    open_: list[str] = []
    while True:
        if char == '"':
            yield from _quoted(char, add)
        else:
            add(char)
            if char in "{[":
                open_.append("}" if char == "{" else "]")
                if len(open_) > _MAX_NESTING:
                    raise MalformedError
            elif char in "}]":
                _expect(char, open_.pop())
                if not open_:
                    return
        char = yield


def _quoted(char: str, add: Callable[[str], None]) -> Reader[None]:
    """Read a string with its quotes."""
    _expect(char, '"')
    add(char)
    while (char := (yield)) != '"':
        add(char)
        if char == "\\":
            add((yield))
        elif char == "\n":
            raise MalformedError
    add(char)


def _string(char: str) -> Reader[str]:
    """Read a string that is a name. Return its value."""
    parts: list[str] = []

    def add(text: str) -> None:
        parts.append(text)
        if len(parts) > _MAX_NAME:
            raise MalformedError

    yield from _quoted(char, add)
    return str(loaded("".join(parts)))


def _next_visible() -> Reader[str]:
    return (yield from _visible((yield)))


def _visible(char: str) -> Reader[str]:
    """Return this character, or the first after it that is no space."""
    while char in _SPACES:
        char = yield
    return char


def _expect(char: str, expected: str) -> None:
    if char != expected:
        raise MalformedError
