"""Whether a converted model decodes: the last thing before it is put in place."""

import asyncio
import logging
import os
from contextlib import closing
from pathlib import Path
from typing import Any

from safetensors import safe_open

from ops.common import prompts
from ops.common.boundary import InputError
from ops.common.decoding import request_of
from schemas import EngineConfig, SamplingParams
from workers.bundle import Bundle
from workers.end_tokens import end_tokens
from workers.loader import load_engine
from workers.target_sizes import target_sizes
from workers.weight_files import stored_tensors

CONTEXT = 256
"""Tokens of the trial's KV pool; it decodes one."""

UNUSUAL = (
    "  a\n\n\tb  ",
    "don't A_b-C.d/e?f=g&h 3.14159 x += 1",
    "naïve café, Straße, Привет",
    "日本語の文 مرحبا 👍🏽🙂 ¡\u200b",
)
SHIPPED = 96
"""Prompts that both readings of a tokenizer encode, in addition to UNUSUAL."""


def try_out(folder: Path) -> None:
    """Decode one token with the engine that serves, from target/ and tokenizer/ in `folder`.

    Raises InputError for weights that are not finite, for tokens that the model does not know, for
    a tokenizer class that contradicts tokenizer.json, and where the token cannot be decoded;
    BundleError for parts that cannot be loaded.
    """
    bundle = Bundle(folder.name, folder, {part: part for part in ("target", "tokenizer")})
    tokenizer = bundle.tokenizer()
    _refuse_other_ids(bundle, tokenizer)
    _refuse_unknown_tokens(bundle, tokenizer)
    _refuse_infinite(bundle.part("target"))
    logging.disable()  # what the engine says of a failure is said once, by the refusal
    try:
        ended = asyncio.run(_decode(bundle, min(tokenizer.get_vocab().values())))
    finally:
        logging.disable(logging.NOTSET)
    if ended not in ("stop", "length"):
        raise InputError("SRC: the model does not decode: its logits are not numbers")


def _refuse_unknown_tokens(bundle: Bundle, tokenizer: Any) -> None:
    rows = target_sizes(bundle.part("target")).vocab
    largest = max(tokenizer.get_vocab().values())
    if largest >= rows:
        raise InputError(
            f"SRC: tokenizer.json has token {largest}, the model's vocab_size is {rows}: they are "
            "of different models"
        )
    beyond = [end for end in end_tokens(bundle) if not 0 <= end < rows]
    if beyond:
        raise InputError(f"SRC: eos_token_id is {beyond[0]}: valid ids are 0 to {rows - 1}")


def _refuse_other_ids(bundle: Bundle, tokenizer: Any) -> None:
    """Some classes build a tokenizer of their own from the vocabulary in tokenizer.json."""
    file = bundle.backend_tokenizer()
    shipped = [prompt.text for prompt in prompts.read(prompts.SHIPPED)[:SHIPPED]]
    for text in (*UNUSUAL, *shipped):
        expected = file.encode(text, add_special_tokens=False).ids
        if tokenizer.encode(text, add_special_tokens=False) != expected:
            raise InputError(
                f"SRC: tokenizer_config.json: tokenizer_class {type(tokenizer).__name__} encodes "
                f"{text[:40]!r} to other tokens than tokenizer.json: if tokenizer.json is right, "
                "set tokenizer_class to PreTrainedTokenizerFast"
            )


def _refuse_infinite(target: Path) -> None:
    for name, stored in stored_tensors(target).items():
        with safe_open(stored.file, "pt") as weights:
            tensor = weights.get_tensor(name)
        if stored.is_float and not tensor.float().isfinite().all():
            raise InputError(f"SRC: {name} holds NaN or infinity: the weights are damaged")


async def _decode(bundle: Bundle, token: int) -> str | None:
    """Decode one token after `token`; return why the response ended."""
    config = EngineConfig(
        threads=len(os.sched_getaffinity(0)),
        dtype="bfloat16",
        max_batch=1,
        kv_slots=CONTEXT,
        max_context=CONTEXT,
    )
    sampling = SamplingParams(temperature=0.0, max_tokens=1)
    with closing(load_engine(["naive"], bundle, config)) as engine:
        async for chunk in engine.generate(request_of("trial", "naive", [token], sampling)):
            ended = chunk.finish_reason
        return ended
