"""The state of one request while its recorded answer is replayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tokenizers import Tokenizer

from schemas import DecodeRequest, DecodeStats, FinishReason
from workers.looping import is_looping
from workers.replay_engine.recording import RecordedAnswer
from workers.stream import Stream
from workers.text import Detokenizer


class ReplaySequence:
    """A recorded answer, its progress and its statistics. Seconds are the event loop's.

    Rejected draft tokens are not recorded; those counts stay 0.
    """

    def __init__(
        self,
        request: DecodeRequest,
        answer: RecordedAnswer,
        stream: Stream,
        tokenizer: Tokenizer,
        now: float,
    ) -> None:
        self.request = request
        self.answer = answer
        self.stream = stream
        self.unread = answer.prompt_tokens
        self.output: list[int] = []
        self.finished: FinishReason | None = None
        self._detokenizer = Detokenizer(tokenizer)
        self._steps = iter(answer.steps)
        self._target_steps = 0
        self._by_method: Counter[str] = Counter()
        self._submitted = self._last = now
        self._admitted: float | None = None
        self._first: float | None = None

    @property
    def remaining(self) -> int:
        """Tokens that may still be emitted."""
        return self.request.sampling.max_tokens - len(self.output)

    @property
    def outstanding(self) -> int:
        """Tokens that the load still counts for it."""
        return self.request.outstanding(len(self.output))

    @property
    def context(self) -> int:
        """Prompt and output tokens so far."""
        return self.answer.prompt_tokens + len(self.output)

    def admit(self, now: float) -> None:
        """Enter the batch and end the waiting time."""
        self._admitted = now

    def emit(self, batch: Mapping[str, int], now: float) -> None:
        """Emit the next recorded step's tokens. together: sequences of each method in the step."""
        recorded = next(self._steps)
        tokens = list(recorded[: self.remaining])
        self.output.extend(tokens)
        self._target_steps += 1
        if self._first is None:
            self._first = now
        else:
            self._by_method.update(batch)
        self._last = now
        if self._target_steps == len(self.answer.steps) and len(tokens) == len(recorded):
            self.finished = self.answer.finish_reason
        elif self.remaining == 0:
            self.finished = "length"
        drafted = [position + 1 < len(recorded) for position in range(len(tokens))]
        text = self._detokenizer.push(tokens)
        if self.finished is not None:
            text += self._detokenizer.flush()
        self.stream.push(text, tokens, drafted)

    def stats(self, reason: FinishReason) -> DecodeStats:
        """Return the answer's statistics so far."""
        first = self._submitted if self._first is None else self._first
        admitted = self._last if self._admitted is None else self._admitted
        decode = self._last - first if self.output else 0.0
        steps = self._target_steps - 1
        return DecodeStats(
            request_id=self.request.request_id,
            method=self.request.method,
            temperature=self.request.sampling.temperature,
            prompt_tokens=self.answer.prompt_tokens,
            output_tokens=len(self.output),
            context_length=self.context,
            target_steps=self._target_steps,
            queue_seconds=max(0.0, admitted - self._submitted),
            first_token_seconds=first - self._submitted,
            decode_seconds=decode,
            total_seconds=self._last - self._submitted,
            other_seconds=decode,
            mean_batch=self._by_method.total() / steps if steps > 0 else 1.0,
            batch_by_method={name: count / steps for name, count in self._by_method.items()},
            finish_reason=reason,
            looping=is_looping(self.output),
        )
