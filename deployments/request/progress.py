"""How far a response came before it was cut off."""

from dataclasses import dataclass
from typing import Any

from schemas import DecodeChunk, DecodeRequest, DecodeStats, LoadReport

AVERAGED_STEPS = 10
"""Recent steps that a load report's step time stands for."""

HELD = 0.25
"""Share of the time from which on a response's reader sets its pace, and not its method. Passing
chunks on takes less than a tenth."""

HUNG = 2.0
"""A silence counts as a step if it is this many times as long as the longest pause between two
chunks before it. A replica sends the chunks of a stream at even intervals."""


@dataclass
class Progress:
    """Count the tokens and target steps of one response as they arrive.

    began: when the method was called, on the event loop's clock. whole: whether the response comes
    in one piece. first, last: when its first and its last chunk arrived. held: seconds in which the
    reader had a chunk and did not ask for the next; held_between: those of them from the first to
    the last chunk. longest: the longest pause between two chunks in seconds, without `held`.
    later_tokens, steps: of the chunks after the first, whose steps were timed. ended: whether the
    answer is complete.
    """

    request: DecodeRequest
    began: float
    whole: bool = False
    first: float | None = None
    last: float = 0.0
    held: float = 0.0
    held_between: float = 0.0
    longest: float = 0.0
    later_tokens: int = 0
    steps: int = 0
    ended: bool = False

    def saw(self, chunk: DecodeChunk, now: float) -> None:
        """Count a chunk that arrived now."""
        self.ended = chunk.finish_reason is not None
        if self.first is None:
            self.first = self.last = now
        elif chunk.token_ids:
            self.longest = max(self.longest, self.silent(now))
            self.last, self.held_between = now, self.held
            self.later_tokens += len(chunk.token_ids)
            # Each step emits one token that was not drafted, after the drafts that it accepts.
            self.steps += len(chunk.token_ids) - sum(chunk.drafted)

    @property
    def needed(self) -> int:
        """Return the decode steps that the next token needs: of a response in one piece, the end,
        with a step for every token."""
        return self.request.sampling.max_tokens if self.whole else self.steps + 1

    def waited(self, now: float) -> float:
        """Return the seconds that the method has taken, without those of its reader."""
        return now - self.began - self.held

    def silent(self, now: float) -> float:
        """Return the part of them since the last chunk."""
        return now - self.last - (self.held - self.held_between)

    def held_up(self, now: float) -> bool:
        """Return whether the response is late because its reader is."""
        return self.held > HELD * (now - self.began)

    def hung(self, now: float, late: bool) -> bool:
        """Return whether it seems to have stopped, rather than to be slow."""
        return self.silent(now) > HUNG * self.longest if self.steps else late

    def nothing(self, now: float) -> DecodeStats:
        """Return the statistics of a response that ended without any of its own."""
        context = len(self.request.known_token_ids)
        return self._stats(now, output_tokens=0, target_steps=0, context_length=context)

    def cut(self, now: float, report: LoadReport | None, late: bool = False) -> DecodeStats | None:
        """Return the statistics of a response that was cut off now; None if they say nothing.

        late: whether the method has taken far longer than predicted. report: the last one of the
        replica that answers. It says which requests share the steps and how long the steps are;
        what the response took beyond that, it waited for other prompts. If no decode step was seen,
        or the reader set their pace, only the report tells their time. The step under way counts if
        it makes the method late or the silence is unusual.
        """
        if self.ended:
            return None
        method = self.request.method
        tokens, steps, stalled = self.later_tokens, self.steps, 0.0
        seconds = self.last - self.first if self.first is not None else 0.0
        context = len(self.request.known_token_ids) + 1 + tokens
        batch = batch_of(method, report)
        step = 0.0 if report is None else report.recent_step_seconds.get(method, 0.0)
        hung = self.hung(now, late)
        if not hung and (not steps or self.held_between > HELD * seconds):
            if not steps and step > 0.0:
                tokens, steps = 0, min(AVERAGED_STEPS, int((now - self.began) / step))
            seconds = steps * step
            batch = _averaged(batch, report)
            if report is not None and report.mean_context:
                context = round(report.mean_context + (1 + tokens) / 2.0)
        elif step > 0.0:
            stalled = max(0.0, seconds - steps * step)
        if hung:
            tokens, steps = tokens + round(tokens / max(1, steps)), steps + 1
            seconds += self.waited(now) if self.first is None else self.silent(now)
        if steps < 1 or seconds <= 0.0:
            return None
        return self._stats(
            now,
            output_tokens=1 + tokens,
            target_steps=1 + steps,
            context_length=context,
            decode_seconds=seconds,
            stalled_seconds=stalled,
            mean_batch=sum(batch.values()),
            batch_by_method=batch,
        )

    def _stats(self, now: float, **counted: Any) -> DecodeStats:
        request, answered = self.request, len(self.request.answered_token_ids)
        return DecodeStats(
            # Another attempt may end the response, and observations count once by id.
            request_id=f"{request.request_id}:{request.method}:{answered}",
            method=request.method,
            temperature=request.sampling.temperature,
            prompt_tokens=len(request.known_token_ids),
            total_seconds=self.waited(now),
            finish_reason="cancelled",
            **counted,
        )


def batch_of(method: str, report: LoadReport | None) -> dict[str, float]:
    """Return the running requests by method, with at least one of `method`."""
    running = {} if report is None else {n: float(c) for n, c in report.running_by_method.items()}
    return running | {method: max(1.0, running.get(method, 0.0))}


def _averaged(batch: dict[str, float], report: LoadReport | None) -> dict[str, float]:
    """Return the batch as large as it was in the steps that the report's step times stand for."""
    mean = 1.0 if report is None else max(1.0, report.mean_batch)
    whole = sum(batch.values())
    return {name: count * mean / whole for name, count in batch.items()}
