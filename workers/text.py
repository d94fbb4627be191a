"""Incremental text of tokens, without stop strings; text and bytes of single tokens; loops."""

import re
from codecs import IncrementalDecoder, getincrementaldecoder
from collections.abc import Collection, Sequence
from functools import cache, lru_cache
from typing import Any, Literal

from tokenizers import Tokenizer

from schemas import SamplingParams
from workers.engine import EngineRefusedError

BROKEN = "\ufffd"
"""The character that decoders write for bytes that are not a character."""


class Detokenizer:
    """Decode a growing list of tokens, holding back incomplete characters.

    The text is that of the tokenizer's decoder over all tokens, in any pieces. One exception: a
    byte-fallback decoder (Llama-2) turns a whole run of byte tokens into U+FFFD if any of it is
    broken. Here the characters before the broken one stay, since they were emitted.
    """

    def __init__(self, backend: Tokenizer, *, skip_special: bool = True) -> None:
        """skip_special: leave special tokens out of the text."""
        self._backend = backend
        self._skips = skip_special
        self._kind, special = _traits(backend)
        self._special = special if skip_special else frozenset[int]()
        self._bytes: IncrementalDecoder | _ByteRun = _ByteRun()
        if self._kind == "bytes":
            self._bytes = getincrementaldecoder("utf-8")(errors="replace")
        self._beginning: list[int] | None = []
        """All tokens so far, until they have text: decoders may strip the first space of it."""
        self._before: list[int] = []
        """Tokens with text, before which the next ones are decoded."""

    def push(self, tokens: Sequence[int]) -> str:
        """Return the characters that these tokens complete; may be empty."""
        return "".join([self._push(token) for token in tokens if token not in self._special])

    def flush(self) -> str:
        """Return U+FFFD for bytes that were held back, once the last token has come."""
        return self._bytes.decode(b"", final=True)

    def _push(self, token: int) -> str:
        piece = self._backend.id_to_token(token)
        if piece is None:
            return ""
        if self._kind == "bytes":
            return self._bytes.decode(byte_level(piece))
        byte = fallback_byte(piece) if self._kind == "fallback" else b""
        text = self._bytes.decode(byte, final=not byte)
        if self._beginning is not None:
            return self._first_text(token, byte, text, self._beginning)
        return text if byte else text + self._after(token)

    def _first_text(self, token: int, byte: bytes, text: str, known: list[int]) -> str:
        if text and not text.strip(BROKEN):  # the bytes before the broken ones have no text yet
            self._before, self._beginning = [*known, token] if byte else known, None
            return text if byte else text + self._after(token)
        known.append(token)
        if byte and not text:
            return ""
        text = self._decoded(known)
        if text:
            self._before, self._beginning = known, None
        return text

    def _after(self, token: int) -> str:
        before = len(self._decoded(self._before))
        text = self._decoded([*self._before, token])
        if self._decoded([token]):
            self._before = [token]
        return text[before:]

    def _decoded(self, tokens: list[int]) -> str:
        text: str = self._backend.decode(tokens, skip_special_tokens=self._skips)
        return text


class _ByteRun:
    """Decoder of a run of byte tokens, with U+FFFD for every byte from the first broken one on."""

    def __init__(self) -> None:
        self._held, self._broken = b"", False

    def decode(self, more: bytes, *, final: bool = False) -> str:
        """Return the characters that these bytes complete. final: the run has ended before them;
        return what the held bytes are."""
        if final:
            text = BROKEN * len(self._held)
            self._held, self._broken = b"", False
            return text
        if self._broken:
            return BROKEN * len(more)
        self._held += more
        try:
            text = self._held.decode()
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data":
                return ""
            self._broken = True
            text = BROKEN * len(self._held)
        self._held = b""
        return text


@lru_cache(maxsize=8)
def _traits(backend: Tokenizer) -> tuple[Literal["bytes", "fallback", "text"], frozenset[int]]:
    """The tokens of a tokenizer: what they stand for, and which never show in a text."""
    decoder = backend.decoder
    state = b"" if decoder is None else decoder.__getstate__()
    added = backend.get_added_tokens_decoder()
    special = frozenset(token for token, of in added.items() if of.special)
    if b'"ByteLevel"' in state:
        return "bytes", special
    return "fallback" if b'"ByteFallback"' in state else "text", special


class StopStrings:
    """Hold back text that may be the start of a stop string.

    The response ends before the stop string that is complete first; of several that end together,
    before the longest. So the pieces of the text do not matter.
    """

    def __init__(self, stops: Sequence[str], *, include: bool = False) -> None:
        """include: the response ends with the stop string, not before it."""
        self._stops = [stop for stop in stops if stop]
        self._include = include
        self._held = ""
        self.hit = False

    def push(self, text: str, *, may_end: bool = True) -> str:
        """Return the text that is safe to emit. At a stop string set `hit` and drop the rest.

        may_end: whether a stop string may be completed within this text.
        """
        if not self._stops:
            return text
        held, text = len(self._held), self._held + text
        found = [
            (at + len(stop), at)
            for stop in self._stops
            if may_end and (at := text.find(stop, max(0, held - len(stop) + 1))) >= 0
        ]
        if found:
            self.hit, self._held = True, ""
            end, begin = min(found)
            return text[: end if self._include else begin]
        keep = max(overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """Return the withheld text, once the response has ended without a stop string."""
        held, self._held = self._held, ""
        return held


class AnswerText:
    """Decode a response's tokens, up to an end token or a stop string."""

    def __init__(self, backend: Tokenizer, eos: Collection[int], sampling: SamplingParams) -> None:
        """eos: the model's own end tokens."""
        self.ended = False
        self._ends = sampling.ends(eos)
        self._least = sampling.min_tokens
        self._include = sampling.include_stop_str_in_output
        self._tokens = 0
        self._detokenizer = Detokenizer(backend, skip_special=sampling.skip_special_tokens)
        self._stops = StopStrings(sampling.stop, include=self._include)

    def push(self, tokens: Sequence[int]) -> tuple[int, str]:
        """Append tokens. Return how many belong to the response and their text; set `ended` at its
        end.

        Engines see to it that none of the first `min_tokens` is an end token.
        """
        end = next((i for i, token in enumerate(tokens) if token in self._ends), None)
        spoken = tokens if end is None else tokens[: end + self._include]
        text = ""
        for position, token in enumerate(spoken):
            may_end = self._tokens + position >= self._least
            text += self._stops.push(self._detokenizer.push([token]), may_end=may_end)
            if self._stops.hit:
                self.ended = True
                return position + 1, text
        self._tokens += len(tokens)
        if end is None:
            return len(tokens), text
        self.ended = True
        return end + 1, text

    def go_on(self, tokens: Sequence[int]) -> None:
        """Continue a response whose beginning was emitted elsewhere. Raises EngineRefusedError
        where the response has ended with it."""
        self.push(tokens)
        if self.ended:
            raise EngineRefusedError("answered_token_ids: the answer has ended with them")

    def flush(self) -> str:
        """Return the withheld text, once the response has ended; nothing after a stop string."""
        if self._stops.hit:
            return ""
        return self._stops.push(self._detokenizer.flush()) + self._stops.flush()


def overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of `text` that is a proper beginning of `stop`."""
    longest = min(len(stop) - 1, len(text))
    return next((n for n in range(longest, 0, -1) if stop.startswith(text[-n:])), 0)


_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE = "\u2581"
"""SentencePiece's symbol for a space."""


class TokenText:
    """Bytes and text of single tokens of a fast tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._pieces: dict[int, str] = {i: piece for piece, i in tokenizer.get_vocab().items()}
        added = tokenizer.added_tokens_decoder
        self._added: dict[int, str] = {i: token.content for i, token in added.items()}
        self._kind, self._special = _traits(tokenizer.backend_tokenizer)

    def is_special(self, token: int) -> bool:
        """Return whether the token never shows in a response's text."""
        return token in self._special

    def raw(self, token: int) -> bytes:
        """Return the token's bytes, which may be part of a character; none for an unknown id."""
        if token in self._added:
            return self._added[token].encode()
        piece = self._pieces.get(token, "")
        if self._kind == "bytes":
            return byte_level(piece)
        return fallback_byte(piece) or piece.replace(_SPACE, " ").encode()

    def text(self, token: int) -> str:
        """Return the token's text, with U+FFFD for incomplete characters."""
        return self.raw(token).decode(errors="replace")


def byte_level(piece: str) -> bytes:
    """Return the bytes of a token of a byte-level tokenizer; of one that has other symbols than
    bytes, such as an added token, the text itself in UTF-8."""
    symbols = _byte_symbols()
    try:
        return bytes(symbols[symbol] for symbol in piece)
    except KeyError:
        return piece.encode()


def fallback_byte(piece: str) -> bytes:
    """Return the byte that a token such as `<0x0A>` stands for in a byte-fallback tokenizer; empty
    for any other token."""
    found = _BYTE.fullmatch(piece)
    return bytes([int(found[1], 16)]) if found else b""


@cache
def _byte_symbols() -> dict[str, int]:
    """Return the byte of each symbol of byte-level vocabularies (GPT-2): printable bytes are
    their own symbols, the others take those from 256 on, in order."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    symbols = {chr(byte): byte for byte in printable}
    return symbols | {chr(256 + i): byte for i, byte in enumerate(others)}


WINDOW = 32
REPEATS = 3


def is_looping(output_token_ids: Sequence[int]) -> bool:
    """Return whether the last 32 tokens are three or more repeats of one n-gram.

    The n-gram has 1 to 10 tokens (three of them must fit) and its last repeat may be cut short
    by the end of the window. Answers under 32 tokens cannot loop.
    """
    if len(output_token_ids) < WINDOW:
        return False
    tail = list(output_token_ids[-WINDOW:])
    return any(tail[n:] == tail[:-n] for n in range(1, WINDOW // REPEATS + 1))
