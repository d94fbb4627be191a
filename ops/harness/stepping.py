"""Decoding step by step in the calling thread, one request at a time: for measuring steps."""

from collections.abc import Sequence

import torch

from schemas import DecodeRequest, EngineConfig, MethodSpec, SamplingParams
from workers.bundle import Bundle
from workers.end_tokens import end_tokens
from workers.stream import Stream
from workers.torch_engine.engine import load_models
from workers.torch_engine.method import Method
from workers.torch_engine.sequence import DecodeSequence


class Stepper:
    """Run models, scheduler and streams in the calling thread, inside a running event loop."""

    def __init__(self, methods: Sequence[MethodSpec], bundle: Bundle, config: EngineConfig) -> None:
        torch.set_num_threads(config.threads)
        cold = config.model_copy(update={"prefix_cache": False})
        self.models = load_models(methods, bundle, cold)
        self._tokenizer = bundle.backend_tokenizer()
        self._eos = end_tokens(bundle)

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
