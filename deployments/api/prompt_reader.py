"""Reading a Prompt from a validated request: model name, tokens, text to embed."""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from deployments.api.generation import GenerationRequest
from deployments.api.grammar_checks import GrammarChecks, helper_arguments
from deployments.api.messages import joined, plain_messages
from deployments.api.request_bodies import ChatRequest, CompletionRequest, ExplainRequest
from deployments.api.tokenizing import DetokenizeRequest, TokenizeRequest, Tokens
from deployments.api.tools.family import ToolFamily, identity
from deployments.artifacts import context_length, read_template
from deployments.errors import ApiError, invalid
from deployments.request.model_names import Chosen, ModelNames
from deployments.request.prompt import Prompt
from schemas import EngineConfig
from schemas.http import HttpConfig
from workers.bundle import Bundle
from workers.chat_template import ChatFormatError, encode_chat, encode_prompt, encode_text
from workers.grammar.specification import GrammarError
from workers.reasoning import Thinking
from workers.token_text import TokenText

# The encoder reads 256 tokens; tokenising more of a long prompt only costs time.
EMBEDDED_CHARACTERS = 8192
# Shorter texts take less than half a millisecond, less than going to a thread and back may.
_SHORT_BYTES = 2048
# What the template writes around a message takes as long.
_MESSAGE_BYTES = 64

_DEFAULTS = HttpConfig()

Result = TypeVar("Result")


class PromptReader:
    """Tokenise each prompt once, with the bundle's tokenizer that all methods share."""

    def __init__(
        self,
        bundle: Bundle,
        methods: Sequence[str],
        engine: EngineConfig,
        http: HttpConfig = _DEFAULTS,
    ) -> None:
        self.names = ModelNames(bundle.name, methods, engine.vllm.lora_adapters)
        self._methods = tuple(methods)
        self.sampling_defaults = bundle.sampling.model_dump(exclude_none=True)
        self._context_length = context_length(bundle, engine)
        self._tokenizer = bundle.tokenizer()
        self.token_text = TokenText(self._tokenizer)
        self._vocabulary = len(self._tokenizer)
        self._longest = max(len(token.encode()) for token in self._tokenizer.get_vocab())
        # One thread with a tokenizer of its own for long texts: a fast tokenizer raises "Already
        # borrowed" when two threads change its settings.
        self._threads_tokenizer = bundle.tokenizer()
        for tokenizer in (self._tokenizer, self._threads_tokenizer):
            if http.chat_template is not None:
                tokenizer.chat_template = read_template(http.chat_template)
            encode_text(tokenizer, "")  # what is made once of each is not made for a request
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokenise")
        self._grammars = GrammarChecks(helper_arguments(bundle, self._tokenizer))
        self.tools = ToolFamily(self._tokenizer, http)
        self._thinking = Thinking(self._tokenizer)

    async def chat(self, request: ChatRequest) -> Prompt:
        """Return the prompt of a conversation. Raises ApiError for an unknown model or if it does
        not fit."""
        chosen = self._chosen_by(request)
        await self._check_fields(request)
        messages, offer = plain_messages(request.messages), request.offer
        ids = await self._chat_ids(messages, request)
        sampling = request.sampling(len(ids), self._context_length)
        sampling = await self.tools.sampling(offer, sampling, self._grammars.check)
        continued = messages[-1]["content"] if request.continue_final_message else ""
        reasoning = self._thinking.reasoning(ids, continued, shown=request.include_reasoning)
        if sampling.grammar is not None:  # which leaves no room for it
            reasoning = None
        repeated = self.tools.repeated(offer)
        return Prompt(
            token_ids=tuple(ids),
            text=_last_user_turn(messages),
            sampling=sampling,
            choices=request.n,
            messages=identity(messages),
            repeated=lambda text: repeated(reasoning.content(text) if reasoning else text),
            reasoning=reasoning,
            pinned=chosen.method,
            adapter=chosen.adapter,
            scope=request.cache_scope(chosen.adapter),
            whole=not request.stream,
            open_ended=request.open_ended,
            max_draft_tokens=request.speculation.most,
            predicted_token_ids=await self._predicted(request),
        )

    async def completion(self, request: CompletionRequest) -> list[Prompt]:
        """Return one or several prompts.

        Raises ApiError for an unknown model, unknown token ids, or a prompt that is empty or does
        not fit.
        """
        chosen = self._chosen_by(request)
        await self._check_fields(request)
        return [
            await self._continued(given, field, request, chosen)
            for field, given in request.prompts().items()
        ]

    async def explained(self, request: ExplainRequest) -> Prompt:
        """Return the prompt of a routing question."""
        chat = ChatRequest(
            model=request.model or self.names.bundle,
            messages=request.chat_messages(),
            temperature=request.temperature,
            max_tokens=request.max_tokens,
        )
        return await self.chat(chat)

    async def tokenised(self, request: TokenizeRequest) -> Tokens:
        """Return the tokens of a text or of messages. Raises ApiError for an unknown model, and for
        a text that is certainly longer than any context."""
        self.names.chosen(request.model or self.names.bundle)
        if request.prompt is None:
            ids = await self._chat_ids(plain_messages(request.messages), request)
        else:
            text, adds = request.prompt, request.add_special_tokens is not False
            size = len(text.encode())
            self._check_size(size, request, None)
            ids = await self._tokenised(size, lambda each: encode_prompt(each, text, adds))
        tokenizer, names = self._threads_tokenizer, None
        if request.return_token_strs:
            names = await self._in_thread(lambda: tokenizer.convert_ids_to_tokens(ids))
        return Tokens(
            count=len(ids), max_model_len=self._context_length, tokens=ids, token_strs=names
        )

    async def text(self, request: DetokenizeRequest) -> str:
        """Return the text of tokens, special ones included. Raises ApiError for an unknown model or
        token, and for more tokens than the context has."""
        self.names.chosen(request.model or self.names.bundle)
        request.check(self._context_length)
        self._check_ids(request.tokens, "tokens")
        return await self._in_thread(lambda: str(self._threads_tokenizer.decode(request.tokens)))

    def _chosen_by(self, request: GenerationRequest) -> Chosen:
        """Return the adapter and the method that a request names. Raises ApiError for unknown ones,
        and if it names two methods."""
        chosen, named = self.names.chosen(request.model), request.speculation.method
        if named is None or named == chosen.method:
            return chosen
        if named not in self._methods or chosen.method is not None:
            why = f"the model is {request.model!r}" if chosen.method else "not served"
            available = f"available: {', '.join(self._methods)}"
            raise invalid("speculation.method", f"{named!r}: {why}; {available}")
        return chosen._replace(method=named)

    async def _continued(
        self, given: str | list[int], field: str, request: CompletionRequest, chosen: Chosen
    ) -> Prompt:
        if isinstance(given, str):
            size = len(given.encode())
            self._check_size(size, request, field)
            adds = request.add_special_tokens
            ids = await self._tokenised(size, lambda each: encode_prompt(each, given, adds))
            text = given
        else:
            self._check_ids(given, field)
            ids, text = given, await self._in_thread(lambda: self._threads_tokenizer.decode(given))
        if not ids:
            raise ApiError(400, f"{field} is empty", param=field, code="invalid_value")
        return Prompt(
            token_ids=tuple(ids),
            text=text[:EMBEDDED_CHARACTERS],
            sampling=request.sampling(len(ids), self._context_length, field),
            choices=request.n,
            pinned=chosen.method,
            adapter=chosen.adapter,
            scope=request.cache_scope(chosen.adapter),
            whole=not request.stream,
            echoed=text if request.echo else "",
            silent=request.max_tokens == 0,
            max_draft_tokens=request.speculation.most,
        )

    async def _check_fields(self, request: GenerationRequest) -> None:
        ids = {
            "logit_bias": map(int, request.logit_bias),
            "stop_token_ids": request.stop_token_ids,
        }
        for field, given in ids.items():
            self._check_ids(given, field)
        if request.wanted_grammar is not None:
            field, asked = request.wanted_grammar
            try:
                await self._grammars.check(asked)
            except GrammarError as error:
                raise invalid(field, str(error)) from error

    def _check_ids(self, tokens: Iterable[int], field: str) -> None:
        unknown = [token for token in tokens if not 0 <= token < self._vocabulary]
        if unknown:
            valid = f"valid ids are 0 to {self._vocabulary - 1}"
            raise invalid(field, f"{unknown[0]} is not a token id; {valid}")

    async def _chat_ids(
        self, messages: Sequence[Mapping[str, Any]], request: ChatRequest | TokenizeRequest
    ) -> list[int]:
        size = sum(len(m["content"].encode()) for m in messages)
        self._check_size(size, request, None)
        size += _MESSAGE_BYTES * len(messages)
        template, tools = request.template(), self.tools.shown(request.offer)
        if tools:
            template["variables"]["tools"] = tools
        calls = [m["tool_calls"] for m in messages if "tool_calls" in m]
        if template["variables"] or calls:
            size += len(json.dumps([template["variables"], calls]))

        def measured(rendered: int) -> None:  # with tools, calls and variables
            self._check_size(rendered, request, None)

        try:
            return await self._tokenised(
                size, lambda each: encode_chat(each, messages, **template, measured=measured)
            )
        except ChatFormatError as error:
            raise ApiError(400, str(error), param="messages", code="invalid_value") from error

    async def _predicted(self, request: ChatRequest) -> tuple[int, ...]:
        """Return the tokens of the predicted answer. Raises ApiError for one that is longer than
        any answer."""
        if request.prediction is None:
            return ()
        text = joined(request.prediction.content)
        size, ids = len(text.encode()), list[int]()
        least = size // self._longest
        if least <= self._context_length:
            ids = await self._tokenised(size, lambda tokenizer: encode_text(tokenizer, text))
        if max(least, len(ids)) > self._context_length:
            raise ApiError(
                400,
                f"prediction: {max(least, len(ids))} tokens are more than the context of "
                f"{self._context_length}; send the part that the answer will resemble",
                param="prediction.content",
                code="invalid_value",
            )
        return tuple(ids)

    def _check_size(
        self, size: int, request: GenerationRequest | TokenizeRequest, field: str | None
    ) -> None:
        # No text has fewer tokens than this, so megabytes are refused without tokenising them.
        least = size // self._longest
        if least > self._context_length:
            raise request.too_long(f"at least {least} tokens", self._context_length, field)

    async def _tokenised(self, size: int, encode: Callable[[Any], list[int]]) -> list[int]:
        """Return what `encode` makes of a text of `size` bytes, given a tokenizer."""
        if size <= _SHORT_BYTES:
            return encode(self._tokenizer)
        return await self._in_thread(lambda: encode(self._threads_tokenizer))

    async def _in_thread(self, call: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)


def _last_user_turn(messages: Sequence[Mapping[str, Any]]) -> str:
    turns: list[str] = [m["content"] for m in messages if m["role"] == "user"]
    return (turns or [messages[-1]["content"]])[-1][:EMBEDDED_CHARACTERS]
