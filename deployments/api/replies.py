"""Replies of chats and completions, as OpenAI's."""

import json
import time
from asyncio import sleep
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType
from typing import Any

from deployments.api.event_stream import Reply
from deployments.api.generation import GenerationRequest
from deployments.api.logprobs import ChatLogprobs, CompletionLogprobs, joined
from deployments.api.messages import Plain, function_call
from deployments.api.request_bodies import ChatRequest
from deployments.api.tools.family import ToolFamily
from deployments.api.tools.fields import Offer
from deployments.api.tools.parser import (
    Arguments,
    Call,
    CallBroken,
    CallStart,
    Piece,
    Spoken,
    Text,
    Thought,
    calls_in,
    settled,
)
from deployments.errors import ApiError
from deployments.request.answered import Answer, interleaved
from deployments.request.prompt import Prompt
from schemas import DecodeChunk, DecodeStats
from workers.text import TokenText

_DONE = "data: [DONE]\n\n"


class OpenAIReply(Reply):
    """Write the responses under one id, each prompt's choices in turn.

    answers: per prompt its choices. tools: reads the calls in them.
    """

    def __init__(
        self,
        asked: GenerationRequest,
        prompts: Sequence[Prompt],
        answers: Sequence[Sequence[Answer]],
        tokens: TokenText,
        tools: ToolFamily,
    ) -> None:
        super().__init__([answer for choices in answers for answer in choices])
        self._chat, self._ids = isinstance(asked, ChatRequest), asked.return_token_ids
        self._options, self._told = asked.stream_options, dict[str, Any]()
        self._firsts = [choices[0] for choices in answers]
        first = prompts[0].sampling
        # A client that sums an echoed prompt's log probabilities needs one entry for every token.
        hides = first.skip_special_tokens and first.prompt_logprobs is None
        writer = ChatLogprobs if self._chat else CompletionLogprobs
        offer, self._older = Offer(), False
        if isinstance(asked, ChatRequest):
            offer, self._older = asked.offer, bool(asked.functions)
        # Where the request names the function, the call is no decision.
        called = "function_call" if self._older else "stop" if offer.named else "tool_calls"
        self._choices = [
            _Choice(
                prompt,
                Spoken(tokens, tools.parser(offer), prompt.reasoning, called),
                writer(tokens, hides_special=hides),
                DraftedRuns(tokens, hides_special=hides),
            )
            for prompt, choices in zip(prompts, answers, strict=True)
            for _ in choices
        ]
        prefix = "chatcmpl" if self._chat else "cmpl"
        self._head = {
            "id": f"{prefix}-{self._firsts[0].request_id}",
            "created": int(time.time()),
            "model": asked.model,
        }

    async def whole(self) -> dict[str, Any]:
        async with aclosing(interleaved(self.answers)) as chunks:
            async for index, chunk in (one async for arrived in chunks for one in arrived):
                self._choices[index].add(chunk)
                await sleep(0)  # other responses go on between two choices
        chat = self._chat
        return {
            **self._head,
            **(self._prompt_ids(self._choices[0]) if chat else {}),
            "object": "chat.completion" if chat else "text_completion",
            "choices": [
                {
                    "index": index,
                    **(
                        {"message": message(choice.pieces, self._older)}
                        if chat
                        else {"text": choice.prompt.echoed + text_of(choice.pieces)}
                    ),
                    "logprobs": choice.logprobs,
                    "finish_reason": choice.finish,
                    **({} if chat else self._prompt_ids(choice)),
                    **self._token_ids(choice.token_ids),
                }
                for index, choice in enumerate(self._choices)
            ],
            "usage": self._usage(),
        }

    def begin(self, told: Mapping[str, Any], _: DecodeChunk | None, /) -> list[str]:
        self._told = dict(told)
        if not self._chat:
            return []
        begin = {"role": "assistant", "content": ""}
        heads = [self._prompt_ids(self._choices[0]), *({} for _ in self.answers[1:])]
        return [self._event(index, head=head, delta=begin) for index, head in enumerate(heads)]

    def of_chunk(self, index: int, chunk: DecodeChunk, /) -> Iterator[str]:
        choice, drafts = self._choices[index], self._options.include_drafted
        # A chat's are in its first event.
        ids = {} if self._chat or choice.begun else self._prompt_ids(choice)
        if not choice.begun and (echoed := choice.prompt.echoed):
            piece = self._piece(Text(echoed)) | ids
            if drafts:
                piece["drafted"] = [(echoed, False)]
            yield self._event(index, logprobs=choice.of_prompt(chunk), **piece)
            choice.begun, ids = True, {}
        logprobs = choice.writer.of(chunk)
        pieces = [one for one in choice.spoken.of(chunk) if not isinstance(one, CallBroken)]
        more = {"logprobs": logprobs} | self._token_ids(chunk.token_ids)
        if drafts and (drafted := choice.runs.of(chunk)):
            more["drafted"] = drafted
        shown = pieces or any((logprobs or {}).values()) or "drafted" in more
        if shown or (self._ids and chunk.token_ids):
            more |= ids
            # What belongs to the chunk goes with the first of its pieces.
            for said in pieces or [Text("")]:
                yield self._event(index, **self._piece(said), **more)
                more = {}
            choice.begun, choice.logprobs = True, None
        else:
            choice.logprobs = choice.logprobs or logprobs
        if chunk.finish_reason is not None:
            finish = choice.spoken.finish(chunk.finish_reason)
            end: dict[str, Any] = {"delta": {}} if self._chat else {"text": ""}
            yield self._event(index, finish=finish, **end, logprobs=choice.logprobs)

    def ending(self) -> list[str]:
        if not self._options.include_usage:
            return [_DONE]
        return [data({**self._chunk_head(), "choices": [], "usage": self._usage()}), _DONE]

    def failed(self, error: ApiError) -> list[str]:
        return [data(error.body())]

    def _usage(self) -> dict[str, Any]:
        reasoning = sum(choice.spoken.reasoning_tokens for choice in self._choices)
        return usage(self.answers, self._firsts, reasoning)

    def _prompt_ids(self, choice: "_Choice") -> dict[str, Any]:
        """Return the ids of a choice's prompt as a field, if they are asked for."""
        return {"prompt_token_ids": choice.prompt.token_ids} if self._ids else {}

    def _token_ids(self, ids: Sequence[int]) -> dict[str, Any]:
        return {"token_ids": ids} if self._ids else {}

    def _piece(self, piece: Text | Thought | CallStart | Arguments) -> dict[str, Any]:
        if self._chat:
            return {"delta": delta(piece, self._older)}
        assert isinstance(piece, Text)
        return {"text": piece.text}

    def _event(
        self,
        index: int,
        *,
        finish: str | None = None,
        logprobs: dict[str, Any] | None = None,
        head: Mapping[str, Any] = MappingProxyType({}),
        **content: Any,
    ) -> str:
        choice = {"index": index, **content, "logprobs": logprobs, "finish_reason": finish}
        told, self._told = self._told, {}
        return data({**self._chunk_head(), **told, **head, "choices": [choice]})

    def _chunk_head(self) -> dict[str, Any]:
        name = "chat.completion.chunk" if self._chat else "text_completion"
        return {**self._head, "object": name}


class DraftedRuns:
    """Split one response's text into runs (text, drafted), chunk by chunk.

    A token's bytes may be part of a character, which then belongs to the token that completes it.
    Texts are the tokens' own: they can be ahead of the response's text while it is held back for a
    stop sequence, and go beyond it if one is found.
    """

    def __init__(self, tokens: TokenText, *, hides_special: bool = True) -> None:
        """hides_special: special tokens are not in the response's text."""
        self._tokens, self._hides_special = tokens, hides_special
        self._decoder = getincrementaldecoder("utf-8")(errors="replace")
        self._first = True

    def of(self, chunk: DecodeChunk) -> list[tuple[str, bool]]:
        """Return the chunk's runs, merging neighbours of one kind; empty if no token is visible."""
        said = [
            (self._decoder.decode(self._tokens.raw(token)), drafted)
            for token, drafted in zip(chunk.token_ids, chunk.drafted, strict=True)
            if not (self._hides_special and self._tokens.is_special(token))
        ]
        runs = [
            ("".join(text for text, _ in run), drafted)
            for drafted, run in groupby(said, key=lambda one: one[1])
        ]
        runs = [run for run in runs if run[0]]
        if runs and self._first:
            self._first = False
            text, drafted = runs[0]
            if text.startswith(" ") and chunk.text and not chunk.text.startswith(" "):
                # SentencePiece's space before the first word, which responses are given without
                runs[0] = (text[1:], drafted)
        return runs


@dataclass
class _Choice:
    """Write one response: spoken, writer and runs read its chunks.

    begun: whether there was an event, or a chunk of a response that is not streamed. logprobs: of
    all its tokens; in a stream those of no visible token, for the last event. pieces, token_ids,
    finish: of a response that is not streamed.
    """

    prompt: Prompt
    spoken: Spoken
    writer: ChatLogprobs | CompletionLogprobs
    runs: DraftedRuns
    begun: bool = False
    logprobs: dict[str, Any] | None = None
    pieces: list[Piece] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    finish: str | None = None

    def add(self, chunk: DecodeChunk) -> None:
        if not self.begun:
            self.begun, self.logprobs = True, self.of_prompt(chunk)
        self.pieces += self.spoken.of(chunk)
        self.token_ids += chunk.token_ids
        if chunk.finish_reason is not None:
            self.finish = self.spoken.finish(chunk.finish_reason)
        self.logprobs = joined(self.logprobs, self.writer.of(chunk))

    def of_prompt(self, first: DecodeChunk) -> dict[str, Any] | None:
        """Return the log probabilities of an echoed prompt, which the first chunk brings."""
        if self.prompt.sampling.prompt_logprobs is None or isinstance(self.writer, ChatLogprobs):
            return None
        return self.writer.of_prompt(self.prompt.token_ids, first.prompt_logprobs)


def data(body: Mapping[str, Any]) -> str:
    """Return a server-sent event without a name."""
    return f"data: {json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n"


def text_of(pieces: Iterable[Piece]) -> str:
    """Return the text in a whole response's pieces."""
    return "".join(piece.text for piece in pieces if isinstance(piece, Text))


def message(pieces: Iterable[Piece], older: bool) -> dict[str, Any]:
    """Return a whole response as a choice's message. older: a call is `function_call`."""
    pieces = settled(pieces)
    text, calls = text_of(pieces), [*map(_call, calls_in(pieces))]
    body: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
    if thought := "".join(piece.text for piece in pieces if isinstance(piece, Thought)):
        body["reasoning_content"] = thought
    if calls:
        body["content"] = text or None
        body |= {"function_call": calls[0]["function"]} if older else {"tool_calls": calls}
    return body


def delta(piece: Text | Thought | CallStart | Arguments, older: bool) -> dict[str, Any]:
    """Return a piece as a streamed choice's delta. older: as in `message`."""
    match piece:
        case Text(text):
            return {"content": text}
        case Thought(text):
            return {"reasoning_content": text}
        case CallStart(index, id_, name, custom):
            begun = _call(Call(id_, name, custom))
            return {"function_call": begun["function"]} if older else _of_call(index, begun)
        case Arguments(index, text, custom):
            if older:
                return {"function_call": {"arguments": text}}
            more = {"custom": {"input": text}} if custom else {"function": {"arguments": text}}
            return _of_call(index, more)


def _of_call(index: int, call: Mapping[str, Any]) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, **call}]}


def _call(call: Call) -> Plain:
    if call.custom:
        custom = {"name": call.name, "input": call.arguments}
        return {"id": call.id, "type": "custom", "custom": custom}
    return function_call(call.id, call.name, call.arguments)


_OF_THE_LONGEST = (
    *("queue_seconds", "decode_seconds", "draft_seconds", "verify_seconds", "sample_seconds"),
    *("other_seconds", "stalled_seconds", "total_seconds", "mean_batch"),
)


def usage(
    answers: Sequence[Answer], firsts: Sequence[Answer], reasoning_tokens: int = 0
) -> dict[str, Any]:
    """Return token counts and what speculation did, summed over the choices; a prompt counts once.

    Seconds are the engine's, of the choice that took longest, since choices are decoded side by
    side. `mean_acceptance_length` counts the bonus token; `routing_ms` is embedding and choosing.
    If a method failed and another continued, all but the token counts are of the latter. firsts:
    each prompt's first choice; the very first gives method and decision.
    """
    answer, choices = firsts[0], _stats(answers)
    steps = sum(one.target_steps for one in choices)
    tokens = sum(one.output_tokens for one in choices)
    stats = max(choices, key=lambda one: one.total_seconds)
    seconds = stats.total_seconds
    speculative = {
        "method": answer.method,
        "cluster": answer.decision.cluster,
        "reason": answer.reason,
        "target_steps": steps,
        "drafted_tokens": sum(one.drafted_tokens for one in choices),
        "accepted_tokens": sum(one.accepted_tokens for one in choices),
        "mean_acceptance_length": tokens / max(1, steps),
        "tokens_per_s": tokens / seconds if seconds > 0 else 0.0,
        **{name: getattr(stats, name) for name in _OF_THE_LONGEST},
        "looping": any(one.looping for one in choices),
        "routing_ms": answer.routed.seconds * 1e3,
        "engine_first_token_ms": stats.first_token_seconds * 1e3,
    }
    completion_tokens = tokens + sum(one.earlier_tokens for one in answers)
    read = sum(one.prompt_tokens for one in _stats(firsts))
    prompt_tokens = read - sum(one.earlier_tokens for one in firsts)
    cached_tokens = sum(one.cached_prompt_tokens for one in _stats(firsts))
    accepted = sum(one.accepted_prediction_tokens for one in choices)
    drafted = sum(one.drafted_prediction_tokens for one in choices)
    return {
        "prompt_tokens": prompt_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
        "completion_tokens": completion_tokens,
        "completion_tokens_details": {
            "reasoning_tokens": reasoning_tokens,
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": drafted - accepted,
        },
        "total_tokens": prompt_tokens + completion_tokens,
        "speculative": speculative,
    }


def _stats(answers: Sequence[Answer]) -> list[DecodeStats]:
    return [answer.stats for answer in answers if answer.stats is not None]
