"""How the served model is shown tools, made to call them, and read."""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from deployments.api.messages import Plain
from deployments.api.tools.fields import FunctionTool, Offer
from deployments.api.tools.formats import Format, format_of
from deployments.api.tools.parser import ToolCallParser
from deployments.api.tools.templates import fitted, tools_template, traits_of
from deployments.errors import ApiError, invalid
from schemas import Grammar, SamplingParams
from schemas.http import HttpConfig
from workers.grammar.specification import GrammarError, json_schema, spaced

Check = Callable[[Grammar], Awaitable[None]]
"""Raises GrammarError for a grammar that cannot be followed."""
TokenOf = Callable[[str], int | None]
"""Returns the id of a special token, None for other text."""

MAX_CALLS = 16
"""Calls in one constrained answer. A model in a loop would otherwise go on until its tokens run
out."""


class ToolFamily:
    """Know what one model's chat template writes, and the format of its calls."""

    def __init__(self, tokenizer: Any, config: HttpConfig) -> None:
        self._traits = traits_of(tokenizer)
        self._format = format_of(tools_template(tokenizer), config.tool_parser)
        added = tokenizer.added_tokens_decoder.items()
        self._special = {token.content: index for index, token in added if token.special}

    def shown(
        self, offer: Offer, messages: Sequence[Plain]
    ) -> tuple[list[Plain], list[dict[str, Any]]]:
        """Return a conversation as the chat template can write it, and the tools for the template:
        none without any, and where the messages tell of them."""
        written = [tool.for_template() for tool in offer.tools] if self._traits.tools else []
        told = () if self._traits.tools else offer.callable
        return fitted(messages, told, self._traits, self._format), written

    async def sampling(self, offer: Offer, asked: SamplingParams, check: Check) -> SamplingParams:
        """Return how to decode a response that may call tools.

        The text keeps special tokens if the format's markers are such. If calls are required, the
        answer has to follow a grammar. A grammar for JSON that the request asks for leaves the
        choice of calling tools, if the format marks calls. Raises ApiError for a schema that
        cannot be enforced.
        """
        if not offer.callable:
            return asked
        markers = self._format.openers + self._format.closers
        skips = asked.skip_special_tokens and self._special.keys().isdisjoint(markers)
        grammar = await self._constraint(offer, asked.grammar, check)
        return asked.model_copy(update={"grammar": grammar, "skip_special_tokens": skips})

    async def _constraint(
        self, offer: Offer, asked: Grammar | None, check: Check
    ) -> Grammar | None:
        """Return the grammar of a response, None if it may be any text.

        Arguments follow their schema. A schema that cannot be enforced is an error where the
        function is strict, else its arguments are any object.
        """
        chosen = asked is not None and asked.kind.startswith("json") and self._format.marked
        if not offer.required and not (offer.callable and chosen):
            return asked
        otherwise = None if offer.required else asked
        for loose in (False, True):
            tokens = self._special.get
            grammar = calls_or(otherwise, offer, self._format, tokens, loose=loose)
            try:
                await check(grammar)
            except GrammarError as error:
                if loose or all(tool.function.strict for tool in offer.callable):
                    raise await self._at_fault(offer, error, check) from error
            else:
                return grammar
        return None

    async def _at_fault(self, offer: Offer, error: GrammarError, check: Check) -> ApiError:
        """Return the error for the first function whose own schema cannot be enforced, without the
        text of a grammar that the client has not written."""
        for index, tool in enumerate(offer.tools):
            schema = Grammar(kind="json_schema", text=json.dumps(_schema(tool, loose=False)))
            try:
                if tool.function.strict and tool in offer.callable:
                    await check(schema)
            except GrammarError:
                field = f"tools[{index}].function.parameters"
                why = f"the schema of the strict function {tool.name!r} cannot be enforced"
                return invalid(field, f"{why}; correct it, or send strict false")
        return invalid("tools", str(error))

    def parser(self, offer: Offer) -> ToolCallParser | None:
        """Return a parser of one response, None if it may call no tool."""
        if not offer.callable:
            return None
        return ToolCallParser(self._format, offer.names, offer.several, offer.custom)


def calls_or(
    otherwise: Grammar | None, offer: Offer, form: Format, token_of: TokenOf, *, loose: bool
) -> Grammar:
    """Return the grammar of a response that is one or more calls in the model's own format.

    otherwise: a grammar for JSON that the response may follow instead. loose: arguments of
    functions that are not strict are any object, whatever their schema.
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
        schema = {"type": "object"}
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
