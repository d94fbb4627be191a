"""Grammars of answers that have to call tools."""

import json
from collections.abc import Callable

from deployments.api.tools.fields import FunctionTool, Offer
from deployments.api.tools.formats import Format
from schemas import Grammar
from workers.grammar.specification import json_schema, spaced

ANY_OBJECT = {"type": "object"}
MAX_CALLS = 16
"""Calls in one constrained answer. A model in a loop would otherwise go on until its tokens run
out."""

TokenOf = Callable[[str], int | None]
"""Returns the id of a special token, None for other text."""


def calls_or(
    otherwise: Grammar | None, offer: Offer, form: Format, token_of: TokenOf, *, loose: bool
) -> Grammar:
    """Return the grammar of an answer that is one or more calls in the model's own format.

    otherwise: a grammar for JSON that the answer may follow instead. loose: arguments of functions
    that are not strict are any object, whatever their schema.
    """
    calls, rules = [], []
    for index, tool in enumerate(offer.callable):
        calls.append(f"call_{index}")
        head, tail = (
            _literal(form.head(tool.function.name), token_of),
            _literal(form.tail, token_of),
        )
        rules.append(f"call_{index}: {head} arguments_{index} {tail}")
        rules.append(f"arguments_{index}: %json {json.dumps(_schema(tool, loose))}")
    begin, end = _literal(form.begin, token_of), _literal(form.end, token_of)
    more = ""
    if offer.several and form.several:
        more = f"({_literal(form.between, token_of)} call){{0,{MAX_CALLS - 1}}}"
    start = " ".join(filter(None, (begin, "call", more, end)))
    lines = [f"call: {' | '.join(calls)}", *rules]
    if otherwise is None:
        lines.insert(0, f"start: {start}")
    else:
        lines = [f"start: calls | answer\ncalls: {start}", *lines]
        lines.append(f"answer: %json {json.dumps(json_schema(otherwise))}")
    return Grammar(kind="lark", text="\n".join(lines))


def _schema(tool: FunctionTool, loose: bool) -> dict[str, object]:
    schema = tool.function.schema_of_arguments
    if loose and not tool.function.strict:
        schema = ANY_OBJECT
    # Arguments are an object, also where the schema does not say so.
    return spaced({"type": "object"} | schema)


def _literal(text: str, token_of: TokenOf) -> str:
    """Return text as Lark's notation has it: special tokens by their ids, and strings."""
    if not text:
        return ""
    for marker in ("[TOOL_CALLS]", "[ARGS]", "<tool_call>", "</tool_call>", "<|python_tag|>"):
        token = token_of(marker) if marker in text else None
        if token is not None:
            before, after = text.split(marker, 1)
            parts = (_literal(before, token_of), f"<[{token}]>", _literal(after, token_of))
            return " ".join(filter(None, parts))
    return json.dumps(text, ensure_ascii=False)
