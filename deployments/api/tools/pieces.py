"""The pieces of a response that reasons and calls tools."""

from collections.abc import Iterator
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
    """Begin the call with this index. Its arguments follow."""

    index: int
    id: str
    name: str


@dataclass(frozen=True)
class Arguments:
    """Hold a part of the arguments of the call with this index; joined they are a JSON object."""

    index: int
    text: str


@dataclass(frozen=True)
class CallBroken:
    """Take back the call with this index: its arguments do not end or are not JSON.

    text: the response's text from the beginning of the call on.
    """

    index: int
    text: str


Piece = Text | Thought | CallStart | Arguments | CallBroken


@dataclass
class Call:
    """Hold one complete call. arguments: a JSON object as text."""

    id: str
    name: str
    arguments: str = ""


class Said:
    """Join the pieces of one response."""

    def __init__(self, text: str = "") -> None:
        """text: what stands before the pieces."""
        self.text, self.reasoning = text, ""
        self._calls: dict[int, Call] = {}

    def add(self, piece: Piece) -> None:
        """Add the next piece."""
        match piece:
            case Text(text):
                self.text += text
            case Thought(text):
                self.reasoning += text
            case CallStart(index, name=name, id=id_):
                self._calls[index] = Call(id_, name)
            case Arguments(index, text):
                self._calls[index].arguments += text
            case CallBroken(index, text):
                del self._calls[index]
                self.text += text

    def pieces(self) -> Iterator[Piece]:
        """Yield the reasoning, the text and the complete calls as pieces."""
        if self.reasoning:
            yield Thought(self.reasoning)
        if self.text:
            yield Text(self.text)
        for index, call in enumerate(self.calls):
            yield CallStart(index, call.id, call.name)
            yield Arguments(index, call.arguments)

    @property
    def calls(self) -> list[Call]:
        """Return the calls in order."""
        return list(self._calls.values())
