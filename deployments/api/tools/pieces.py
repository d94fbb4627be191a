"""The pieces of a response that reasons and calls tools."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Text:
    """Hold text of the response."""

    text: str


@dataclass(frozen=True)
class Thought:
    """Hold text of the reasoning before the response."""

    text: str


@dataclass(frozen=True)
class CallStart:
    """Begin the call with this index. Its arguments follow. custom: of a tool that takes a text."""

    index: int
    id: str
    name: str
    custom: bool = False


@dataclass(frozen=True)
class Arguments:
    """Hold a part of the arguments of the call with this index; joined they are a JSON object, or
    the text of a custom tool."""

    index: int
    text: str
    custom: bool = False


@dataclass(frozen=True)
class CallBroken:
    """Take back the call with this index: its arguments do not end or are not JSON.

    text: the response's text from the beginning of the call on.
    """

    index: int
    text: str


Piece = Text | Thought | CallStart | Arguments | CallBroken


def settled(pieces: Iterable[Piece]) -> list[Piece]:
    """Return a whole response's pieces in their order, broken calls as text."""
    done: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, CallBroken):
            while not isinstance(done.pop(), CallStart):
                pass
            done.append(Text(piece.text))
        else:
            done.append(piece)
    return done


@dataclass
class Call:
    """Hold one complete call. arguments: a JSON object as text, or a custom tool's text."""

    id: str
    name: str
    custom: bool = False
    arguments: str = ""


def calls_in(pieces: Iterable[Piece]) -> list[Call]:
    """Return the calls in a whole response's pieces, without broken ones."""
    calls: list[Call] = []
    for piece in pieces:
        match piece:
            case CallStart(id=id_, name=name, custom=custom):
                calls.append(Call(id_, name, custom))
            case Arguments(text=text):
                calls[-1].arguments += text
    return calls
