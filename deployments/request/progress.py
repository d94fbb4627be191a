"""How far an answer came before it was cut off."""

from dataclasses import dataclass

from schemas import DecodeChunk, DecodeRequest, DecodeStats, LoadReport

AVERAGED_STEPS = 10
"""Recent steps that a load report's step time stands for."""


@dataclass
class Progress:
    """Count the tokens and target steps of one answer as they arrive.

    began: when the method was called, on the event loop's clock. first, last: when its first and
    its last chunk arrived. tokens: of all chunks. later_tokens, steps: of the chunks after the
    first, whose steps were timed. ended: whether the answer is complete or was refused. late:
    whether its deadline passed because the method is slow.
    """

    request: DecodeRequest
    began: float
    first: float | None = None
    last: float = 0.0
    tokens: int = 0
    later_tokens: int = 0
    steps: int = 0
    ended: bool = False
    late: bool = False

    def saw(self, chunk: DecodeChunk, now: float) -> None:
        """Count a chunk that arrived now."""
        self.ended = chunk.finish_reason is not None
        self.tokens += len(chunk.token_ids)
        if self.first is None:
            self.first = self.last = now
        elif chunk.token_ids:
            self.last = now
            self.later_tokens += len(chunk.token_ids)
            # Each step emits one token that was not drafted, after the drafts that it accepts.
            self.steps += len(chunk.token_ids) - sum(chunk.drafted)

    def cut(self, now: float, report: LoadReport | None) -> DecodeStats | None:
        """Return the statistics of an answer that was cut off now; None if they say nothing.

        report: the last one of the replica that answers. It says which requests share the steps,
        and how long the steps take if no decode step was seen.
        """
        tokens, steps = self.later_tokens, self.steps
        seconds = self.last - self.first if self.first is not None else 0.0
        method = self.request.method
        if not steps and report is not None and method in report.recent_step_seconds:
            step = report.recent_step_seconds[method]
            steps = min(AVERAGED_STEPS, int((now - self.began) / step)) if step > 0.0 else 0
            tokens, seconds = 0, steps * step
        if self.ended or steps < 1 or seconds <= 0.0:
            return None
        batch = _batch(method, report)
        known = len(self.request.known_token_ids)
        return DecodeStats(
            # Another attempt may end the answer, and observations count once by id.
            request_id=f"{self.request.request_id}:{len(self.request.answered_token_ids)}",
            method=method,
            temperature=self.request.sampling.temperature,
            prompt_tokens=known,
            output_tokens=1 + tokens,
            context_length=known + 1 + tokens,
            target_steps=1 + steps,
            decode_seconds=seconds,
            total_seconds=now - self.began,
            mean_batch=sum(batch.values()),
            batch_by_method=batch,
            finish_reason="cancelled",
        )


def _batch(method: str, report: LoadReport | None) -> dict[str, float]:
    """Return the running requests by method, with at least one of `method`."""
    running = {} if report is None else {n: float(c) for n, c in report.running_by_method.items()}
    return running | {method: max(1.0, running.get(method, 0.0))}
