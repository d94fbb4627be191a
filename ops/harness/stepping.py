"""Decoding step by step in the calling thread, one request at a time: for measuring steps."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ops.harness.decoding import DecodeFailedError
from schemas import DecodeRequest, EngineConfig, MethodSpec, SamplingParams
from workers.bundle import Bundle
from workers.end_tokens import end_tokens
from workers.stream import Stream
from workers.torch_engine.engine import load_models
from workers.torch_engine.method import Method
from workers.torch_engine.sequence import DecodeSequence


@dataclass
class Steps:
    """The decode steps of an answer.

    seconds, tokens: of each step but the first, whose round also reads the prompt. count, emitted:
    the number of steps and of tokens that they emitted.
    """

    seconds: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    count: int = 0
    emitted: int = 0


class Stepper:
    """Run models, scheduler and streams in the calling thread, inside a running event loop."""

    def __init__(self, methods: Sequence[MethodSpec], bundle: Bundle, config: EngineConfig) -> None:
        torch.set_num_threads(config.threads)
        cold = config.model_copy(update={"prefix_cache": False})
        self.models = load_models(methods, bundle, cold)
        self._tokenizer = bundle.backend_tokenizer()
        self._eos = end_tokens(bundle)

    def decode(
        self, method: Method, token_ids: Sequence[int], sampling: SamplingParams
    ) -> tuple[list[int], Steps]:
        """Decode a prompt into tokens and steps. Raises DecodeFailedError if a step fails."""
        sequence = self.start(method, token_ids, sampling)
        steps = Steps()
        with torch.inference_mode():
            while sequence.finished is None:
                before = sequence.output_tokens
                started = time.perf_counter()
                self.models.scheduler.round()
                if before:
                    steps.seconds.append(time.perf_counter() - started)
                    steps.tokens.append(sequence.output_tokens - before)
                if sequence.finished is None and not sequence.admitted:
                    raise DecodeFailedError(f"{method.name}: a step failed, as the log says")
        steps.count, steps.emitted = sequence.tally.target_steps - 1, sequence.output_tokens - 1
        return sequence.tokens[sequence.prompt_tokens :], steps

    def start(
        self, method: Method, token_ids: Sequence[int], sampling: SamplingParams
    ) -> DecodeSequence:
        """A request in the line, to be decoded by rounds of the scheduler."""
        request = DecodeRequest(
            request_id=method.name,
            method=method.name,
            prompt_token_ids=tuple(token_ids),
            sampling=sampling,
        )
        stream = Stream(request.request_id)
        sequence = DecodeSequence(request, stream, tokenizer=self._tokenizer, eos=self._eos)
        self.models.scheduler.submit(sequence)
        return sequence
