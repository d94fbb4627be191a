"""llama.cpp on the GGUF file that a bundle's target was imported from."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ops.bench.decode.peer_process import Answered
from ops.harness.boundary import InputError
from schemas import SamplingParams
from workers.bundle import Bundle
from workers.end_tokens import end_tokens

PLAIN, LOOKUP = "llamacpp", "llamacpp-lookup"
MODES = (PLAIN, LOOKUP)
DRAFT_TOKENS = 8


class LlamaCpp:
    """llama.cpp through llama-cpp-python, without its prefix cache.

    `llamacpp` is plain decoding, `llamacpp-lookup` its prompt look-up of up to 8 tokens.
    """

    modes = MODES

    def __init__(self, bundle: Bundle, threads: int, context: int) -> None:
        assert bundle.packaged is not None
        self._file, self._threads, self._context = bundle.packaged.installed(), threads, context
        self._end = end_tokens(bundle.part("target"), bundle.tokenizer())
        self._models: dict[str, Any] = {}

    def settings(self) -> dict[str, Any]:
        """See Peer."""
        import llama_cpp

        system = llama_cpp.llama_print_system_info().decode()
        return {"version": llama_cpp.__version__, "file": Path(self._file).name, "system": system}

    def generate(
        self, mode: str, prompt_token_ids: Sequence[int], sampling: SamplingParams, seed: int
    ) -> Answered:
        """See Peer."""
        model = self._models.get(mode) or self._loaded(mode)
        model.set_seed(seed)
        model.reset()
        started, answer = time.perf_counter(), list[int]()
        for token in model.generate(
            list(prompt_token_ids),
            temp=sampling.temperature,
            top_k=0,
            top_p=sampling.top_p,
            min_p=0.0,
            repeat_penalty=1.0,
        ):
            answer.append(int(token))
            if token in self._end or len(answer) == sampling.max_tokens:
                break
        return tuple(answer), time.perf_counter() - started

    def _loaded(self, mode: str) -> Any:
        from llama_cpp import Llama
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

        lookup = LlamaPromptLookupDecoding(num_pred_tokens=DRAFT_TOKENS) if mode == LOOKUP else None
        self._models[mode] = Llama(
            str(self._file),
            n_ctx=self._context,
            n_threads=self._threads,
            n_threads_batch=self._threads,
            draft_model=lookup,
            verbose=False,
        )
        return self._models[mode]


def refuse_llamacpp(bundle: Bundle) -> None:
    """Raise InputError where llama.cpp cannot decode the bundle's target."""
    try:
        import llama_cpp  # noqa: F401
    except ImportError as error:
        raise InputError(
            "--peers: llama.cpp is not installed: python -m pip install 'specadapt[peers]'"
        ) from error
    if bundle.packaged is None:
        raise InputError("--peers: llama.cpp needs a bundle whose target is a package's GGUF file")
