"""One answer's chunks as pieces."""

from deployments.api.tools.parser import ToolCallParser
from deployments.api.tools.pieces import Piece, Text
from schemas import DecodeChunk


class Spoken:
    """Turn chunks into pieces; without a parser all is text."""

    def __init__(self, parser: ToolCallParser | None) -> None:
        self._parser = parser

    def of(self, chunk: DecodeChunk) -> list[Piece]:
        """Return the pieces that a chunk completes; the last chunk completes all."""
        if self._parser is None:
            return [Text(chunk.text)] if chunk.text else []
        pieces = self._parser.push(chunk.text)
        return pieces if chunk.finish_reason is None else [*pieces, *self._parser.end()]

    def finish(self, reason: str) -> str:
        """Return OpenAI's finish reason for an engine's."""
        called = self._parser is not None and self._parser.called
        return "tool_calls" if called and reason == "stop" else reason
