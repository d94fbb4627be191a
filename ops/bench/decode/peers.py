"""Other decoders of a target, each in a process of its own: Hugging Face's and llama.cpp."""

import asyncio
import multiprocessing
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, closing
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ops.common.boundary import InputError
from ops.common.output import quiet_transformers
from ops.common.settings import device_of
from schemas import EngineConfig, SamplingParams
from workers.bundle import Bundle
from workers.end_tokens import end_tokens

ASSISTED = {
    "num_assistant_tokens": 4,
    "num_assistant_tokens_schedule": "constant",
    "assistant_confidence_threshold": 0.0,
}
PLAIN, ASSISTED_MODE, STATIC_MODE = "hf", "hf-assisted", "hf-static"
HF_MODES: dict[str, dict[str, Any]] = {
    PLAIN: {},
    ASSISTED_MODE: {},
    "hf-prompt-lookup": {"prompt_lookup_num_tokens": 8},
    STATIC_MODE: {"cache_implementation": "static"},
}
"""Hugging Face's modes, and the arguments of `generate` that they are."""
CPP_MODES = ("llamacpp", "llamacpp-lookup")
DRAFT_TOKENS = 8
Answered = tuple[tuple[int, ...], float]
"""A response's token ids, the end token included, and its seconds."""


class PeerProcess:
    """A decoder with `modes` and `generate`, one call at a time, alone in a process.

    Two threads that compute in one process keep OpenMP threads each; where these are more than
    cores, OpenMP lets all of them sleep between operators, and both decoders would look several
    times slower than they are. Seconds are measured inside the process.
    """

    def __init__(self, make: Callable[..., Any], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_run, args=(other, make, arguments), daemon=True)
        self._process.start()
        other.close()
        self.modes: tuple[str, ...] = tuple(self._call())

    async def generate(
        self, mode: str, prompt_token_ids: Sequence[int], sampling: SamplingParams, seed: int
    ) -> Answered:
        """Answer a prompt; wait without blocking the event loop."""
        answered: Answered = await asyncio.to_thread(
            self._call, "generate", mode, tuple(prompt_token_ids), sampling, seed
        )
        return answered

    def top_two_gap(self, token_ids: Sequence[int]) -> float:
        """See HuggingFace.top_two_gap; other peers have none."""
        return float(self._call("top_two_gap", tuple(token_ids)))

    def close(self) -> None:
        """Kill the process, which has nothing to save: what it imported may hang at its exit."""
        self._process.kill()
        self._process.join()
        self._connection.close()

    def _call(self, *call: Any) -> Any:
        """Return the result of a call by name, or of the start without one. Raise what the process
        raised, and InputError if it has died."""
        try:
            if call:
                self._connection.send(call)
            result = self._connection.recv()
        except (EOFError, OSError) as error:
            raise InputError("--peers: a peer's process has died") from error
        if isinstance(result, Exception):
            raise result
        return result


def _run(connection: Connection, make: Callable[..., Any], arguments: Sequence[Any]) -> None:
    """Send a peer's modes, then the result of each call that arrives, or the exception."""
    peer: Any = None
    while True:
        try:
            if peer is None:
                peer = make(*arguments)
                result: Any = tuple(peer.modes)
            else:
                name, *given = connection.recv()
                result = getattr(peer, name)(*given)
        except EOFError:
            return
        except Exception as error:
            result = error
        connection.send(result)
        if peer is None:
            return


class HuggingFace:
    """The bundle's target (and draft) under transformers: sdpa, KV cache, the given dtype, or
    float32 where the engine computes in int8 or q4.

    `hf` is its ordinary decoding, `hf-assisted` has the bundle's draft propose 4 tokens a step,
    `hf-prompt-lookup` copies up to 8 tokens from what is already there, `hf-static` decodes plainly
    with a static cache, whose forward transformers compiles on GPUs.
    """

    def __init__(self, bundle: Bundle, dtype: str, threads: int, device: str) -> None:
        import torch

        quiet_transformers()
        torch.set_num_threads(threads)
        precision = torch.bfloat16 if dtype == "bfloat16" else torch.float32
        self.device = device
        self._target = self._load(bundle, "target", precision)
        self._draft = self._load(bundle, "draft", precision) if bundle.has("draft") else None
        if self._draft is not None:
            # transformers reads these from the assistant's own generation config. A threshold
            # would add a scikit-learn ROC curve to every step.
            self._draft.generation_config.update(**ASSISTED)
        self.modes = [mode for mode in HF_MODES if self._draft is not None or mode != ASSISTED_MODE]

    def _load(self, bundle: Bundle, part: str, dtype: Any) -> Any:
        from transformers import AutoModelForCausalLM

        model: Any = AutoModelForCausalLM.from_pretrained(
            bundle.part(part), dtype=dtype, attn_implementation="sdpa", local_files_only=True
        )
        return model.to(self.device).eval()

    def generate(
        self, mode: str, prompt_token_ids: Sequence[int], sampling: SamplingParams, seed: int
    ) -> Answered:
        """Answer a prompt in one of the modes."""
        import torch

        choosing: dict[str, Any] = {"do_sample": False}
        if sampling.temperature > 0:
            torch.manual_seed(seed)
            choosing = {"do_sample": True, "temperature": sampling.temperature, "top_k": 0}
        started = time.perf_counter()
        with torch.inference_mode():
            ids = torch.tensor([list(prompt_token_ids)], device=self.device)
            choosing |= {"attention_mask": torch.ones_like(ids), "use_cache": True}
            choosing |= {"max_new_tokens": sampling.max_tokens, **HF_MODES[mode]}
            if mode == ASSISTED_MODE:
                choosing["assistant_model"] = self._draft
            output = self._target.generate(ids, **choosing)
        answer = tuple(output[0, ids.shape[1] :].tolist())
        return answer, time.perf_counter() - started

    def top_two_gap(self, token_ids: Sequence[int]) -> float:
        """Return how far apart the target's two best logits are after these tokens."""
        import torch

        with torch.inference_mode():
            ids = torch.tensor([list(token_ids)], device=self.device)
            best = self._target(ids).logits[0, -1].float().topk(2).values
        return float(best[0] - best[1])


class LlamaCpp:
    """llama.cpp through llama-cpp-python, without its prefix cache.

    file: in GGUF. end: tokens that end a response. context: most tokens of a sequence. Its process
    imports no torch, whose OpenMP threads it would share.

    `llamacpp` is plain decoding, `llamacpp-lookup` its prompt look-up of up to 8 tokens.
    """

    modes = CPP_MODES

    def __init__(self, file: Path, end: Collection[int], threads: int, context: int) -> None:
        self._file, self._end, self._threads, self._context = file, end, threads, context
        self._models: dict[str, Any] = {}

    def generate(
        self, mode: str, prompt_token_ids: Sequence[int], sampling: SamplingParams, seed: int
    ) -> Answered:
        """Answer a prompt in one of the modes."""
        model = self._models.get(mode) or self._loaded(mode)
        model.set_seed(seed)
        model.reset()
        started, answer = time.perf_counter(), list[int]()
        choosing = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0}
        for token in model.generate([*prompt_token_ids], temp=sampling.temperature, **choosing):
            answer.append(int(token))
            if token in self._end or len(answer) == sampling.max_tokens:
                break
        return tuple(answer), time.perf_counter() - started

    def _loaded(self, mode: str) -> Any:
        from llama_cpp import Llama, llama_cpp
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

        if b"AMX_INT8 = 1" in llama_cpp.llama_print_system_info():
            llama_cpp.llama_model_default_params = _without_extra_buffers(llama_cpp)
        lookup = LlamaPromptLookupDecoding(num_pred_tokens=DRAFT_TOKENS)
        self._models[mode] = Llama(
            str(self._file),
            n_ctx=self._context,
            n_threads=self._threads,
            n_threads_batch=self._threads,
            draft_model=lookup if mode == CPP_MODES[1] else None,
            verbose=False,
        )
        return self._models[mode]


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


def start_peers(
    asked: Sequence[str] | None, bundle: Bundle, engine: EngineConfig, stack: ExitStack
) -> dict[str, PeerProcess]:
    """Return the processes of the peers' modes; the modes of one peer share a process.

    asked: None for Hugging Face's but hf-static. Raises InputError for a mode that is unknown or
    cannot run here.
    """
    wanted = [mode for mode in HF_MODES if mode != STATIC_MODE] if asked is None else asked
    known = (*HF_MODES, *CPP_MODES)
    if unknown := [mode for mode in wanted if mode not in known]:
        raise InputError(f"--peers: {unknown[0]!r} is none of {', '.join(known)}, none")
    found = dict[str, PeerProcess]()

    def start(make: Callable[..., Any], *arguments: Any) -> None:
        peer = stack.enter_context(closing(PeerProcess(make, *arguments)))
        found.update(dict.fromkeys(peer.modes, peer))

    if {*wanted} & {*HF_MODES}:
        start(HuggingFace, bundle, engine.dtype, engine.threads, device_of(engine))
    if {*wanted} & {*CPP_MODES}:
        file, end = gguf_file(bundle), end_tokens(bundle)
        start(LlamaCpp, file, end, engine.threads, engine.max_context)
    missing = [mode for mode in wanted if mode not in found]
    if missing and asked is not None:
        raise InputError(f"--peers: {missing[0]} needs a draft model, which the bundle has not")
    return {mode: found[mode] for mode in wanted if mode in found}
