"""Hugging Face `generate()` as it is at its best here: what the methods are compared with."""

import time
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from ops.bench.decode.peer_process import Answered
from ops.harness.output import quiet_transformers
from schemas import SamplingParams
from workers.bundle import Bundle

ASSISTED = {
    "num_assistant_tokens": 4,
    "num_assistant_tokens_schedule": "constant",
    "assistant_confidence_threshold": 0.0,
}
PROMPT_LOOKUP = {"prompt_lookup_num_tokens": 8}
STATIC = {"cache_implementation": "static"}
PLAIN, ASSISTED_MODE, LOOKUP, STATIC_MODE = MODES = (
    "hf",
    "hf-assisted",
    "hf-prompt-lookup",
    "hf-static",
)


class HuggingFace:
    """The bundle's target (and draft) under transformers: sdpa, KV cache, the given dtype, or
    float32 where the engine computes in int8 or q4.

    `hf` is its ordinary decoding, `hf-assisted` has the bundle's draft propose 4 tokens a step,
    `hf-prompt-lookup` copies up to 8 tokens from what is already there, `hf-static` decodes plainly
    with a static cache, whose forward transformers compiles on GPUs.
    """

    def __init__(self, bundle: Bundle, dtype: str, threads: int, device: str) -> None:
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
        self.modes = [mode for mode in MODES if self._draft is not None or mode != ASSISTED_MODE]

    def _load(self, bundle: Bundle, part: str, dtype: torch.dtype) -> Any:
        model: Any = AutoModelForCausalLM.from_pretrained(
            bundle.part(part), dtype=dtype, attn_implementation="sdpa", local_files_only=True
        )
        return model.to(self.device).eval()

    def settings(self) -> dict[str, Any]:
        """See Peer."""
        return {
            "attention": "sdpa",
            "cache": "dynamic, but for hf-static",
            "assisted": ASSISTED if self._draft is not None else None,
            "prompt_lookup": PROMPT_LOOKUP,
        }

    @torch.inference_mode()
    def generate(
        self,
        mode: str,
        prompt_token_ids: Sequence[int],
        sampling: SamplingParams,
        seed: int,
    ) -> Answered:
        """See Peer."""
        choosing: dict[str, Any] = {"do_sample": False}
        if sampling.temperature > 0:
            torch.manual_seed(seed)
            choosing = {"do_sample": True, "temperature": sampling.temperature, "top_k": 0}
            choosing["top_p"] = sampling.top_p
        started = time.perf_counter()
        ids = torch.tensor([list(prompt_token_ids)], device=self.device)
        output = self._target.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=sampling.max_tokens,
            use_cache=True,
            **choosing,
            **self._arguments(mode),
        )
        answer = tuple(output[0, ids.shape[1] :].tolist())
        return answer, time.perf_counter() - started

    @torch.inference_mode()
    def top_two_gap(self, token_ids: Sequence[int]) -> float:
        """How far apart the target's two best logits are after these tokens."""
        ids = torch.tensor([list(token_ids)], device=self.device)
        best = self._target(ids).logits[0, -1].float().topk(2).values
        return float(best[0] - best[1])

    def _arguments(self, mode: str) -> dict[str, Any]:
        if mode == ASSISTED_MODE:
            return {"assistant_model": self._draft}
        if mode == LOOKUP:
            return PROMPT_LOOKUP
        return STATIC if mode == STATIC_MODE else {}
