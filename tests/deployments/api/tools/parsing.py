"""Answers read by the tool parser."""

from deployments.api.tools.parser import ToolCallParser
from deployments.api.tools.pieces import Said

OFFERED = ("get_current_temperature", "get_temperature_date", "trending_songs", "get_weather")


def parsed(form, parts, **more):
    """Return the pieces of an answer that comes in parts."""
    parser, pieces = ToolCallParser(form, OFFERED, **more), []
    for part in parts:
        pieces += parser.push(part)
    return [*pieces, *parser.end()]


def joined(pieces, read=str):
    """Return the text, and each call's name and arguments, read by `read`."""
    said = Said()
    for piece in pieces:
        said.add(piece)
    return said.text, [(call.name, read(call.arguments)) for call in said.calls]
