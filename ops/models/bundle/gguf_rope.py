"""The rotary embeddings that a GGUF file describes, as a Hugging Face config expresses them."""

import math
from typing import Any

import numpy as np

from ops.models.bundle.gguf_file import FIX, GgufFile

FREQUENCIES = "rope_freqs.weight"
DEFAULT_BASE = 10000.0
"""The default of llama.cpp."""
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
"""Every published model with Llama 3's scaling has these."""
CONTEXTS = tuple(2**power for power in range(4, 21))
"""Original context lengths to try: the file holds the factors alone."""
CLOSE = 1e-3
"""Relative difference between factors that rounding explains."""
SCALING = {
    "type",
    "factor",
    "original_context_length",
    "attn_factor",
    "yarn_attn_factor",
    "finetuned",
    "yarn_beta_fast",
    "yarn_beta_slow",
}


def rope_parameters(file: GgufFile, dims: int) -> dict[str, Any]:
    """Translate the base, the scaling and the frequency factors of `dims` rotary dimensions.

    Raises InputError naming the field that no config expresses.
    """
    prefix = f"{file.architecture}.rope."
    base, scaling = file.number(f"{prefix}freq_base", DEFAULT_BASE), f"{prefix}scaling."
    named = {key.removeprefix(scaling) for key in file.fields if key.startswith(scaling)}
    for name in named - SCALING:
        raise file.refusal(f"{scaling}{name} is not carried over: {FIX}")
    kind = file.fields.get(f"{scaling}type", "none")
    factor = file.fields.get(f"{scaling}factor", 1.0)
    if kind != "yarn" and file.number(f"{scaling}attn_factor", 1.0) != 1.0:
        raise file.refusal(
            f"{scaling}attn_factor is {file.fields[f'{scaling}attn_factor']} without type 'yarn': "
            f"{FIX}"
        )
    plain = {"rope_theta": base, "rope_type": "default"}
    if kind in ("none", "linear") and factor in (0, 1):  # llama.cpp's words for no scaling
        return _with_factors(file, plain, dims)
    if kind == "none" and "type" in named:
        return _with_factors(file, plain, dims)
    if kind not in ("linear", "yarn"):
        raise file.refusal(
            f"{scaling}factor is {factor} and its type {kind!r}: linear and yarn are carried over: "
            f"{FIX}"
        )
    if FREQUENCIES in file.tensors:
        raise file.refusal(f"{FREQUENCIES} and {scaling}type {kind!r} exclude each other")
    number = file.number(f"{scaling}factor")
    scaled = plain | {"rope_type": kind, "factor": number}
    return scaled | _yarn(file, scaling, number) if kind == "yarn" else scaled


def _yarn(file: GgufFile, scaling: str, factor: float) -> dict[str, Any]:
    """YaRN's settings (arXiv 2309.00071); llama.cpp multiplies its attention factor with theirs."""
    context = file.number(f"{file.architecture}.context_length")
    original = file.number(f"{scaling}original_context_length", context)
    settings: dict[str, Any] = {"original_max_position_embeddings": int(original)}
    for name in ("beta_fast", "beta_slow"):
        if f"{scaling}yarn_{name}" in file.fields:
            settings[name] = file.number(f"{scaling}yarn_{name}")
    scale = file.number(f"{scaling}attn_factor", 1.0) * file.number(
        f"{scaling}yarn_attn_factor", 1.0
    )
    if scale != 1.0:
        settings["attention_factor"] = scale * (0.1 * math.log(factor) + 1.0)
    return settings


def _with_factors(file: GgufFile, plain: dict[str, Any], dims: int) -> dict[str, Any]:
    """Find Llama 3's settings whose factors are those of rope_freqs.weight, if the file has it."""
    if FREQUENCIES not in file.tensors:
        return plain
    factors = np.asarray(file.tensors[FREQUENCIES].data, dtype=np.float64).reshape(-1)
    if factors.shape != (dims // 2,) or not np.all(np.isfinite(factors) & (factors > 0)):
        raise file.refusal(f"{FREQUENCIES} must hold {dims // 2} positive factors")
    if np.allclose(factors, 1.0, rtol=CLOSE):
        return plain
    largest = float(factors.max())
    for context in CONTEXTS:
        if np.allclose(
            _llama3(dims, plain["rope_theta"], largest, context), factors, rtol=CLOSE, atol=0
        ):
            return {
                "rope_theta": plain["rope_theta"],
                "rope_type": "llama3",
                "factor": largest,
                **LLAMA3,
                "original_max_position_embeddings": context,
            }
    raise file.refusal(f"{FREQUENCIES} holds factors that are not Llama 3's: {FIX}")


def _llama3(dims: int, base: float, factor: float, context: int) -> np.ndarray:
    """The factors [dims / 2] by which Llama 3 divides its frequencies."""
    low, high = LLAMA3.values()
    wavelength = 2 * np.pi * base ** (np.arange(0, dims, 2) / dims)
    smooth = np.clip((context / wavelength - low) / (high - low), 0.0, 1.0)
    return 1.0 / ((1.0 - smooth) / factor + smooth)
