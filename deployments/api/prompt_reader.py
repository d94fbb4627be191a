"""Reading a Prompt from a validated request: model name, tokens, text to embed."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

from deployments.api.generation import TOO_LONG, GenerationRequest
from deployments.api.grammar_checks import GrammarChecks, helper_arguments
from deployments.api.messages import Plain, called_bytes, joined, plain_messages
from deployments.api.request_bodies import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    ExplainRequest,
    TokenizeRequest,
)
from deployments.api.tokenizers import SHORT_BYTES, Tokenizers, TokenLimit, check_beginning
from deployments.api.tools.family import ToolFamily
from deployments.artifacts import context_length
from deployments.errors import ApiError, invalid, no_model
from deployments.guard.caller import Caller
from deployments.request.prompt import Conversation, Prompt
from schemas import EngineConfig
from schemas.http import HttpConfig
from workers.bundle import Bundle
from workers.chat_template import ChatFormatError, Encode, encode_chat, encode_prompt, encode_text
from workers.grammar.specification import GrammarError
from workers.reasoning import Thinking
from workers.text import TokenText

# The encoder reads 256 tokens; tokenising more of a long prompt only costs time.
EMBEDDED_CHARACTERS = 8192
# Reading a message takes as long as these, whatever is in it.
_MESSAGE_BYTES = 64
_TOKEN_BYTES = 4


class Chosen(NamedTuple):
    """What a model's name asks for: an adapter of the target, and the method that answers."""

    adapter: str | None = None
    method: str | None = None


class ModelNames:
    """Know a bundle's names: BUNDLE, BUNDLE:METHOD, BUNDLE:ADAPTER and BUNDLE:ADAPTER:METHOD."""

    def __init__(self, bundle: str, methods: Iterable[str], adapters: Iterable[str]) -> None:
        self.bundle = bundle
        pairs = product((None, *adapters), (None, *methods))
        self._chosen = {":".join(filter(None, (bundle, *pair))): Chosen(*pair) for pair in pairs}
        self.listed = tuple(name for name, pair in self._chosen.items() if None in pair)
        """The names of /v1/models. Those with adapter and method are left out: they are many."""

    def chosen(self, model: str) -> Chosen:
        """Return what a name asks for. Raises ApiError 404 `model_not_found` for any other name."""
        chosen = self._chosen.get(model)
        if chosen is None:
            available = ", ".join(self.listed)
            raise no_model(f"the model {model!r} does not exist; available models: {available}")
        return chosen

    def parent(self, model: str) -> str | None:
        """Return the model that a name's adapter adapts, None without one. Raises as `chosen`."""
        return None if self.chosen(model).adapter is None else self.bundle


class PromptReader:
    """Tokenise each prompt once, with the bundle's tokenizer that all methods share."""

    def __init__(
        self,
        bundle: Bundle,
        methods: Sequence[str],
        engine: EngineConfig,
        http: HttpConfig,
    ) -> None:
        self.names = ModelNames(bundle.name, methods, engine.lora_adapters)
        self._methods = tuple(methods)
        self.sampling_defaults = bundle.sampling.model_dump(exclude_none=True)
        self._context_length = context_length(bundle, engine)
        self._caps = http.cap_max_tokens
        self.tokenizers = Tokenizers(bundle, http)
        tokenizer = self.tokenizers.own
        self.token_text = TokenText(tokenizer)
        self._vocabulary = len(tokenizer)
        self._longest = max(len(token.encode()) for token in tokenizer.get_vocab())
        self._grammars = GrammarChecks(helper_arguments(bundle, tokenizer))
        self.tools = ToolFamily(tokenizer, http)
        self._thinking = Thinking(tokenizer)

    async def chat(
        self,
        request: ChatRequest,
        caller: Caller,
        known: dict[str, list[int]] | None = None,
        *,
        caps: bool | None = None,
    ) -> Prompt:
        """Return the prompt of a conversation.

        known: tokens of pieces that this and shorter forms of the conversation share. caps: whether
        max_tokens is lowered to what the context has left; None: as configured. Raises ApiError for
        an unknown model or if the prompt does not fit.
        """
        chosen = self._chosen_by(request)
        await self._check_fields(request, caller)
        offer = request.offer
        limit = TokenLimit(
            self._context_length, partial(self._too_long, request), {} if known is None else known
        )
        messages, conversation, ids = await self._chat_ids(request, caller, limit.encode)
        caps = self._caps if caps is None else caps
        sampling = request.sampling(len(ids), self._context_length, caps=caps)
        sampling = await self.tools.sampling(offer, sampling, partial(self._grammars.check, caller))
        continued = messages[-1]["content"] if request.continue_final_message else ""
        reasoning = self._thinking.reasoning(ids, continued, shown=request.include_reasoning)
        if sampling.grammar is not None:  # which leaves no room for it
            reasoning = None
        return Prompt(
            token_ids=tuple(ids),
            text=_last_user_turn(messages),
            sampling=sampling,
            conversation=conversation,
            reasoning=reasoning,
            open_ended=request.open_ended,
            predicted_token_ids=await self._predicted(request, caller),
            **_asked(request, chosen),
        )

    async def completion(self, request: CompletionRequest, caller: Caller) -> list[Prompt]:
        """Return one or several prompts.

        Raises ApiError for an unknown model, unknown token ids, or a prompt that is empty or does
        not fit.
        """
        chosen = self._chosen_by(request)
        await self._check_fields(request, caller)
        return [
            await self._continued(given, field, request, chosen, caller)
            for field, given in request.prompts().items()
        ]

    async def explained(self, request: ExplainRequest, caller: Caller) -> Prompt:
        """Return the prompt of a routing question."""
        chat = ChatRequest(
            model=request.model or self.names.bundle,
            messages=request.chat_messages(),
            temperature=request.temperature,
            max_tokens=request.max_tokens,
        )
        return await self.chat(chat, caller)

    async def tokenised(self, request: TokenizeRequest, caller: Caller) -> dict[str, Any]:
        """Return the response body with the tokens of a text or of messages.

        Raises ApiError for an unknown model, and for a text that is certainly longer than any
        context.
        """
        self.names.chosen(request.model or self.names.bundle)
        text, adds = request.prompt or "", request.add_special_tokens is not False
        size = len(text.encode()) + sum(len(joined(one.content)) for one in request.messages)
        if (least := size // self._longest) > self._context_length:
            why = f"at least {least} tokens; this model's context is {self._context_length}"
            raise invalid("messages" if request.messages else "prompt", why, TOO_LONG)
        if request.messages:
            _, _, ids = await self._chat_ids(request, caller, encode_text)
        else:
            ids = await self.tokenizers.read(
                caller, size, lambda each: encode_prompt(each, text, adds)
            )
        names = None
        if request.return_token_strs:
            names = await self.tokenizers.read(
                caller, _TOKEN_BYTES * len(ids), lambda each: each.convert_ids_to_tokens(ids)
            )
        return {
            "count": len(ids),
            "max_model_len": self._context_length,
            "tokens": ids,
            "token_strs": names,
        }

    async def text(self, request: DetokenizeRequest, caller: Caller) -> str:
        """Return the text of tokens, special ones included. Raises ApiError for an unknown model or
        token, and for more tokens than the context has."""
        self.names.chosen(request.model or self.names.bundle)
        if len(request.tokens) > self._context_length:  # the text of one may be long
            most = f"at most {self._context_length}, which is this model's context"
            raise invalid("tokens", f"{most}, got {len(request.tokens)}")
        self._check_ids(request.tokens, "tokens")
        return await self._text(caller, request.tokens)

    async def _text(self, caller: Caller, ids: list[int]) -> str:
        return await self.tokenizers.read(
            caller, _TOKEN_BYTES * len(ids), lambda each: str(each.decode(ids))
        )

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
        self,
        given: str | list[int],
        field: str,
        request: CompletionRequest,
        chosen: Chosen,
        caller: Caller,
    ) -> Prompt:
        most, too_long = self._context_length, partial(self._too_long, request, field=field)
        if isinstance(given, str):
            size, adds = len(given.encode()), request.add_special_tokens

            def encode(tokenizer: Any) -> list[int]:
                check_beginning(given, lambda t: encode_prompt(tokenizer, t), most, too_long)
                return encode_prompt(tokenizer, given, adds)

            ids = await self.tokenizers.read(caller, size, encode)
        else:
            self._check_ids(given, field)
            ids = given
        if not ids:
            raise invalid(field, "is empty")
        sampling = request.sampling(len(ids), most, field, caps=self._caps)
        text = given if isinstance(given, str) else await self._text(caller, ids)
        return Prompt(
            token_ids=tuple(ids),
            text=text[:EMBEDDED_CHARACTERS],
            sampling=sampling,
            echoed=text if request.echo else "",
            silent=request.max_tokens == 0,
            **_asked(request, chosen),
        )

    async def _check_fields(self, request: GenerationRequest, caller: Caller) -> None:
        ids = {
            "logit_bias": map(int, request.logit_bias),
            "stop_token_ids": request.stop_token_ids,
        }
        for field, given in ids.items():
            self._check_ids(given, field)
        if request.wanted_grammar is not None:
            field, asked = request.wanted_grammar
            try:
                await self._grammars.check(caller, asked)
            except GrammarError as error:
                raise invalid(field, str(error)) from error

    def _check_ids(self, tokens: Iterable[int], field: str) -> None:
        unknown = [token for token in tokens if not 0 <= token < self._vocabulary]
        if unknown:
            valid = f"valid ids are 0 to {self._vocabulary - 1}"
            raise invalid(field, f"{unknown[0]} is not a token id; {valid}")

    async def _chat_ids(
        self, request: ChatRequest | TokenizeRequest, caller: Caller, encode: Encode
    ) -> tuple[list[Plain], Conversation, list[int]]:
        """Return a conversation as templates read it, what identifies it, and its tokens."""
        size = sum(
            len(joined(message.content).encode()) + _MESSAGE_BYTES + called_bytes(message)
            for message in request.messages
        )
        template, offer = request.template(), request.offer
        if (
            template["variables"] or offer.tools
        ):  # of any size: measuring them is as slow as reading
            size += SHORT_BYTES

        def read(tokenizer: Any) -> tuple[list[Plain], Conversation, list[int]]:
            messages = plain_messages(request.messages)
            shown, tools = self.tools.shown(offer, messages)
            if tools:
                template["variables"]["tools"] = tools
            ids = encode_chat(tokenizer, shown, **template, encode=encode)
            return messages, Conversation.of(messages), ids

        try:
            return await self.tokenizers.read(caller, size, read)
        except ChatFormatError as error:
            raise invalid("messages", str(error)) from error

    async def _predicted(self, request: ChatRequest, caller: Caller) -> tuple[int, ...]:
        """Return the tokens of the predicted response. Raises ApiError for one that is longer than
        any answer."""
        if request.prediction is None:
            return ()
        text = joined(request.prediction.content)
        limit = TokenLimit(self._context_length, self._long_prediction)
        read = self.tokenizers.read(
            caller, len(text.encode()), lambda each: limit.encode(each, text)
        )
        return tuple(await read)

    def _long_prediction(self, tokens: int) -> ApiError:
        most = f"at least {tokens} tokens are more than the context of {self._context_length}"
        why = f"{most}; send the part that the answer will resemble"
        return invalid("prediction.content", why)

    def _too_long(
        self, request: GenerationRequest, tokens: int, field: str | None = None
    ) -> ApiError:
        return request.too_long(f"at least {tokens} tokens", self._context_length, field)


def _asked(request: GenerationRequest, chosen: Chosen) -> dict[str, Any]:
    """Return the fields of a prompt that all requests decide."""
    return {
        "choices": request.n,
        "pinned": chosen.method,
        "adapter": chosen.adapter,
        "scope": request.cache_scope(chosen.adapter),
        "whole": not request.stream,
        "max_draft_tokens": request.speculation.most,
    }


def _last_user_turn(messages: Sequence[Mapping[str, Any]]) -> str:
    turns: list[str] = [m["content"] for m in messages if m["role"] == "user"]
    return (turns or [messages[-1]["content"]])[-1][:EMBEDDED_CHARACTERS]
