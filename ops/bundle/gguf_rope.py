"""The rotary embeddings that a GGUF file describes, as a Hugging Face config expresses them."""

import math
from typing import Any

import numpy as np

from ops.bundle.gguf_file import FIX, GgufFile

FREQUENCIES = "rope_freqs.weight"
DEFAULT_BASE = 10000.0
"""llama.cpp's where a file names none."""
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
    base = float(file.fields.get(f"{prefix}freq_base", DEFAULT_BASE))
    if not (math.isfinite(base) and base > 0):
        raise file.refusal(f"{prefix}freq_base is {base}: it must be positive")
    found = {
        key.removeprefix(f"{prefix}scaling."): value
        for key, value in file.fields.items()
        if key.startswith(f"{prefix}scaling.")
    }
    for name in found.keys() - SCALING:
        raise file.refusal(f"{prefix}scaling.{name} is not carried over: {FIX}")
    kind, factor = found.get("type", "none"), float(found.get("factor", 1.0))
    if kind != "yarn" and float(found.get("attn_factor", 1.0)) != 1.0:
        raise file.refusal(
            f"{prefix}scaling.attn_factor is {found['attn_factor']} without type 'yarn': {FIX}"
        )
    plain = {"rope_theta": base, "rope_type": "default"}
    if kind == "none" or (kind == "linear" and factor in (0.0, 1.0)):
        if kind == "none" and "type" not in found and factor not in (0.0, 1.0):
            raise file.refusal(f"{prefix}scaling.factor is {factor} without a type: {FIX}")
        return _with_factors(file, plain, dims)
    if FREQUENCIES in file.tensors:
        raise file.refusal(f"{FREQUENCIES} and {prefix}scaling.type {kind!r} exclude each other")
    if not (math.isfinite(factor) and factor > 0):
        raise file.refusal(f"{prefix}scaling.factor is {factor}: it must be positive")
    if kind == "linear":
        return {"rope_theta": base, "rope_type": "linear", "factor": factor}
    if kind != "yarn":
        raise file.refusal(
            f"{prefix}scaling.type is {kind!r}: none, linear and yarn are carried over: {FIX}"
        )
    return {"rope_theta": base, "rope_type": "yarn", "factor": factor} | _yarn(file, found, factor)


def _yarn(file: GgufFile, found: dict[str, Any], factor: float) -> dict[str, Any]:
    """YaRN's settings (arXiv 2309.00071); llama.cpp multiplies its attention factor with theirs."""
    context = f"{file.architecture}.context_length"
    settings: dict[str, Any] = {
        "original_max_position_embeddings": int(
            found.get("original_context_length") or file.required(context)
        )
    }
    for name, key in (("beta_fast", "yarn_beta_fast"), ("beta_slow", "yarn_beta_slow")):
        if key in found:
            settings[name] = float(found[key])
    scale = float(found.get("attn_factor", 1.0)) * float(found.get("yarn_attn_factor", 1.0))
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
