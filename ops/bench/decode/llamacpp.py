"""llama.cpp on the GGUF file that a bundle's target was imported from."""

import time
from collections.abc import Callable, Collection, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ops.bench.decode.peer_process import Answered
from ops.harness.boundary import InputError
from schemas import SamplingParams
from workers.bundle import Bundle

PLAIN, LOOKUP = "llamacpp", "llamacpp-lookup"
MODES = (PLAIN, LOOKUP)
DRAFT_TOKENS = 8


class LlamaCpp:
    """llama.cpp through llama-cpp-python, without its prefix cache.

    file: in GGUF. end: tokens that end an answer. context: most tokens of a sequence. Nothing
    here imports torch, so that llama.cpp shares its process with no other OpenMP threads.

    `llamacpp` is plain decoding, `llamacpp-lookup` its prompt look-up of up to 8 tokens.
    """

    modes = MODES

    def __init__(self, file: Path, end: Collection[int], threads: int, context: int) -> None:
        self._file, self._end, self._threads, self._context = file, end, threads, context
        self._has_amx = "AMX_INT8 = 1" in _system()
        self._models: dict[str, Any] = {}

    def settings(self) -> dict[str, Any]:
        """See Peer."""
        import llama_cpp

        return {
            "version": llama_cpp.__version__,
            "file": self._file.name,
            "system": _system(),
            "extra_buffers": not self._has_amx,
        }

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
        from llama_cpp import Llama, llama_cpp
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

        if self._has_amx:
            llama_cpp.llama_model_default_params = _without_extra_buffers(llama_cpp)
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


def _system() -> str:
    import llama_cpp

    return str(llama_cpp.llama_print_system_info().decode())


def _without_extra_buffers(library: Any) -> Callable[[], Any]:
    """Return the library's default parameters with weights laid out as in the file.

    llama-cpp-python 0.3.36 crashes with weights laid out for AMX, and Llama has no parameter.
    """
    defaults = library.llama_model_default_params

    def changed() -> Any:
        parameters = defaults()
        parameters.use_extra_bufts = False
        return parameters

    return changed


def gguf_file(bundle: Bundle) -> Path:
    """Return the file that llama.cpp decodes. Raises InputError where it cannot."""
    if find_spec("llama_cpp") is None:
        raise InputError(
            "--peers: llama.cpp is not installed: python -m pip install 'specadapt[peers]'"
        )
    if bundle.packaged is None:
        raise InputError("--peers: llama.cpp needs a bundle whose target is a package's GGUF file")
    return bundle.packaged.installed()
