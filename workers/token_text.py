"""Text and bytes of single tokens, for log probabilities."""

import re
from functools import cache
from typing import Any

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE = "\u2581"
"""SentencePiece's symbol for a space."""


class TokenText:
    """Bytes and text of single tokens of a fast tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._pieces: dict[int, str] = {i: piece for piece, i in tokenizer.get_vocab().items()}
        added = tokenizer.added_tokens_decoder
        self._added: dict[int, str] = {i: token.content for i, token in added.items()}
        self._special = frozenset(i for i, token in added.items() if token.special)
        decoder = tokenizer.backend_tokenizer.decoder
        self._byte_level = decoder is not None and b"ByteLevel" in decoder.__getstate__()

    def is_special(self, token: int) -> bool:
        """Return whether the token never shows in an answer's text."""
        return token in self._special

    def raw(self, token: int) -> bytes:
        """Return the token's bytes, which may be part of a character; none for an unknown id."""
        if token in self._added:
            return self._added[token].encode()
        piece = self._pieces.get(token, "")
        if self._byte_level:
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
