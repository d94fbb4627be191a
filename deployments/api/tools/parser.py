"""Splitting a response, as it comes, into pieces of reasoning, text and tool calls."""

import re
import secrets
import string
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from deployments.api.tools.formats import Format
from deployments.api.tools.reading import Events, MalformedError, Reader, loaded
from schemas import DecodeChunk
from workers.reasoning import Reasoning, Splitter
from workers.text import TokenText

_LETTERS = string.ascii_letters + string.digits
_UNMARKED = ("{", "```")
"""Openers that other text has too."""
_LINE_START = re.compile(r"(?:\A|\n)[^\S\n]*\{")
_LATER_LINE_START = re.compile(r"\n[^\S\n]*\{")
PART = 1024
"""Characters that are looked at together, however many come at once."""
MOST_AGAIN = 65_536
"""Most characters of a response that are read a second time because they turned out not to be a
call. Without this bound, the time for a response that repeats the beginning of a call would grow
with the square of its length."""


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


class ToolCallParser:
    """Parse one response. How the text is cut into parts does not change what the pieces join to.

    Text that turns out to be no call, or is not finished, is text of the response. Spaces around
    calls are dropped.
    """

    def __init__(
        self,
        form: Format,
        offered: Collection[str],
        several: bool = True,
        custom: Collection[str] = (),
    ) -> None:
        """offered: the functions' names; JSON without a marker is a call only of one of them.
        several: whether calls after the first are kept. custom: the names of tools that take a
        text, whose calls have it in one piece in place of arguments."""
        self._custom = custom
        self._form, self._events = form, Events(self._start, self._add, self._complete)
        self._offered = offered
        self._several = several
        self._held = ""
        """Text that may belong to a call."""
        self._reader: Reader[None] | None = None
        self._opener = ""
        self._raw: list[str] = []
        """What the reader has read since the last complete call, with the opener."""
        self._again = 0
        """Characters that were read again."""
        self._after_call = False
        """Whether nothing but spaces and a closer has come since the last call."""
        self._closers: tuple[str, ...] = ()
        """What may still follow that call."""
        self._text_before = False
        """Whether there is text before what is held, without a call in between."""
        self._any_text = False
        self._begun = self._completed = 0
        """Calls of the response."""
        self._arguments: list[str] | None = None
        """Of the call that has begun and is not complete."""
        self._takes_text = False
        """Whether that is a call of a custom tool."""
        self._pieces: list[Piece] = []

    @property
    def called(self) -> bool:
        """Return whether the response has called a function."""
        return self._completed > 0

    def push(self, text: str) -> list[Piece]:
        """Append text of the response. Return the pieces that it completes."""
        for begin in range(0, len(text), PART):
            self._held += text[begin : begin + PART]
            self._go_on()
        return self._taken()

    def end(self) -> list[Piece]:
        """Return what was held, once the response has ended."""
        while self._reader is not None:
            self._give_up()
            self._go_on()
        if not self._after_call:
            self._say(self._held)
        self._held = ""
        return self._taken()

    def _start(self, name: str) -> None:
        """Begin a call. Raises MalformedError for JSON without a marker that names no function."""
        if self._opener in _UNMARKED and name not in self._offered:
            raise MalformedError
        self._arguments = []
        self._begun += 1
        self._takes_text = name in self._custom
        self._give(CallStart(self._begun - 1, self._id(), name, self._takes_text))

    def _add(self, text: str) -> None:
        """Add to the call's arguments."""
        assert self._arguments is not None
        self._arguments.append(text)
        if not self._takes_text:
            self._give(Arguments(self._begun - 1, text))

    def _complete(self) -> None:
        """End the call. Raises MalformedError if its arguments are not JSON."""
        assert self._arguments is not None
        arguments = loaded("".join(self._arguments))
        if self._takes_text:
            text = arguments.get("input") if isinstance(arguments, dict) else None
            if not isinstance(text, str):
                raise MalformedError
            self._give(Arguments(self._begun - 1, text, custom=True))
        self._arguments = None
        self._completed += 1
        self._opener, self._raw = "", []

    def _give(self, piece: CallStart | Arguments | CallBroken) -> None:
        """Give a piece of a call, unless only the first call is kept."""
        if self._several or self._completed == 0:
            self._pieces.append(piece)

    def _id(self) -> str:
        if self._form.short_ids:  # Mistral's templates accept no others
            return "".join(secrets.choice(_LETTERS) for _ in range(9))
        return f"call_{secrets.token_hex(12)}"

    def _go_on(self) -> None:
        """Read the held text as far as it is certain what it is."""
        while self._read() if self._reader is not None else self._look():
            pass

    def _look(self) -> bool:
        """Look for a call in the held text. Return whether one may have begun."""
        if self._after_call and not self._past_closer():
            return False
        at, opener = self._found()
        if not opener:
            self._say(self._held[: self._certain()])
            return False
        self._say(self._held[:at].rstrip())
        spaces = self._held.partition(opener)[0]
        self._opener, self._raw = opener, [spaces]
        self._held = self._held.removeprefix(spaces)
        if opener != "{":  # which is read as a part of the call
            self._raw.append(opener)
            self._held = self._held.removeprefix(opener)
        self._reader = self._form.reader(self._events, opener)
        next(self._reader)
        return True

    def _past_closer(self) -> bool:
        """Drop spaces and one closer behind a call. Return whether other text has come."""
        self._held = self._held.lstrip()
        closer = next(filter(self._held.startswith, self._closers), "")
        if closer:
            self._held, self._closers = self._held.removeprefix(closer).lstrip(), ()
        if any(closer.startswith(self._held) for closer in ("", *self._closers)):
            return False
        self._after_call = False
        self._held = self._separated(self._held)
        return True

    def _separated(self, text: str) -> str:
        """Return text behind a call, apart from the text before the call."""
        return "\n" + text if self._any_text else text

    def _found(self) -> tuple[int, str]:
        """Return where a call may begin and its opener, which is empty if there is none."""
        places = [
            (at, opener)
            for opener in self._form.openers
            if (at := self._line_start() if opener == "{" else self._held.find(opener)) >= 0
        ]
        return min(places, default=(0, ""))

    def _line_start(self) -> int:
        """Return where a line begins with a brace, -1 if none does."""
        pattern = _LATER_LINE_START if self._text_before else _LINE_START
        found = pattern.search(self._held)
        return -1 if found is None else found.end() - 1

    def _certain(self) -> int:
        """Return how many held characters are not part of a call, whatever follows."""
        markers = [opener for opener in self._form.openers if opener != "{"]
        longest = max(map(len, markers), default=1) - 1
        for size in range(min(longest, len(self._held)), 0, -1):
            if any(marker.startswith(self._held[-size:]) for marker in markers):
                return len(self._held[:-size].rstrip())
        return len(self._held.rstrip())

    def _say(self, text: str) -> None:
        """Give the beginning of the held text as text of the response."""
        self._held = self._held.removeprefix(text)
        if text:
            self._text_before = self._any_text = True
            self._pieces.append(Text(text))

    def _read(self) -> bool:
        """Read the held text as a call. Return whether the call has ended."""
        assert self._reader is not None
        for at, char in enumerate(self._held):
            self._raw.append(char)
            try:
                self._reader.send(char)
            except StopIteration:
                self._held = self._held[at + 1 :]
                self._reader = None
                self._after_call, self._text_before = True, False
                self._closers = self._form.closers
                return True
            except MalformedError:
                self._held = self._held[at + 1 :]
                self._give_up()
                return True
        self._held = ""
        return False

    def _give_up(self) -> None:
        """Go on behind what is not a call after all."""
        self._reader = None
        self._text_before = True
        raw = "".join(self._raw)
        if self._arguments is not None:
            self._arguments = None
            self._give(CallBroken(self._begun - 1, raw))
            return
        if not self._opener:  # behind the last complete call of a list
            raw = raw.strip(" ,\n")
            raw = raw and self._separated(raw)
        self._held = raw + self._held
        self._again += len(raw)
        if self._again > MOST_AGAIN:
            self._say(raw)
        else:  # another call may begin in what was read
            self._say(raw.partition(self._opener)[0] + self._opener if self._opener else "")

    def _taken(self) -> list[Piece]:
        """Return the pieces so far, neighbours of one kind joined."""
        joined: list[Piece] = []
        for _, same in groupby(self._pieces, lambda one: (type(one), getattr(one, "index", 0))):
            first, *more = same
            if isinstance(first, Text | Arguments):
                texts = [one.text for one in more if isinstance(one, Text | Arguments)]
                first = replace(first, text="".join([first.text, *texts]))
            joined.append(first)
        self._pieces = []
        return joined


class Spoken:
    """Turn chunks into pieces: reasoning first, then what a parser makes of the rest.

    Without `reasoning` there is none, and without a parser all of the rest is text. called: the
    finish reason of a response that has called tools.
    """

    def __init__(
        self,
        tokens: TokenText,
        parser: ToolCallParser | None,
        reasoning: Reasoning | None = None,
        called: str = "tool_calls",
    ) -> None:
        self._tokens, self._parser, self._called = tokens, parser, called
        self.reasoning_tokens = 0
        """Tokens of the reasoning, its tags included."""
        self._splitter = None if reasoning is None else Splitter(reasoning)
        self._shows_reasoning = reasoning is not None and reasoning.shown

    def of(self, chunk: DecodeChunk) -> list[Piece]:
        """Return the pieces that a chunk completes; the last chunk completes all."""
        ended = chunk.finish_reason is not None
        thought, text = self._split(chunk, ended)
        pieces: list[Piece] = [Thought(thought)] if thought and self._shows_reasoning else []
        if self._parser is None:
            return [*pieces, Text(text)] if text else pieces
        pieces += self._parser.push(text)
        return [*pieces, *self._parser.end()] if ended else pieces

    def finish(self, reason: str) -> str:
        """Return OpenAI's finish reason for an engine's."""
        called = self._parser is not None and self._parser.called
        return self._called if called and reason == "stop" else reason

    def _split(self, chunk: DecodeChunk, ended: bool) -> tuple[str, str]:
        """Return the reasoning and the content of a chunk's text."""
        if self._splitter is None:
            return "", chunk.text
        thinks = self._splitter.thinks
        thought, content = self._splitter.push(chunk.text)
        if thinks:
            self.reasoning_tokens = self._reasoning_tokens(self._splitter, chunk.token_ids, ended)
        if not ended:
            return thought, content
        last = self._splitter.finish()
        return thought + last[0], content + last[1]

    def _reasoning_tokens(self, splitter: Splitter, tokens: Sequence[int], ended: bool) -> int:
        """Return the reasoning's tokens so far, with those of a chunk that it may end in."""
        if not splitter.found and (ended or not splitter.thinks):
            return 0
        count, behind = self.reasoning_tokens + len(tokens), splitter.behind
        for token in reversed(tokens):
            if behind <= 0:
                break
            behind -= len(self._tokens.text(token))
            count -= 1
        return count
