"""One answer's chunks as pieces."""

from deployments.api.tools.parser import ToolCallParser
from deployments.api.tools.pieces import Piece, Text, Thought
from schemas import DecodeChunk
from workers.reasoning import Reasoning, Splitter


class Spoken:
    """Turn chunks into pieces: reasoning first, then what a parser makes of the rest.

    Without `reasoning` there is none, and without a parser all of the rest is text.
    """

    def __init__(self, parser: ToolCallParser | None, reasoning: Reasoning | None = None) -> None:
        self._parser = parser
        self._splitter = None if reasoning is None else Splitter(reasoning)
        self._shows_reasoning = reasoning is not None and reasoning.shown

    def of(self, chunk: DecodeChunk) -> list[Piece]:
        """Return the pieces that a chunk completes; the last chunk completes all."""
        ended = chunk.finish_reason is not None
        thought, text = self._split(chunk.text, ended)
        pieces: list[Piece] = [Thought(thought)] if thought and self._shows_reasoning else []
        if self._parser is None:
            return [*pieces, Text(text)] if text else pieces
        pieces += self._parser.push(text)
        return [*pieces, *self._parser.end()] if ended else pieces

    def finish(self, reason: str) -> str:
        """Return OpenAI's finish reason for an engine's."""
        called = self._parser is not None and self._parser.called
        return "tool_calls" if called and reason == "stop" else reason

    def _split(self, text: str, ended: bool) -> tuple[str, str]:
        """Return the reasoning and the content of a chunk's text."""
        if self._splitter is None:
            return "", text
        thought, content = self._splitter.push(text)
        if not ended:
            return thought, content
        last = self._splitter.finish()
        return thought + last[0], content + last[1]
