"""A GGUF file: its weights dequantised to bfloat16, and the tokenizer that it describes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ops.cli.boundary import InputError
from workers.bundle import file_hash

SMOLLM = "smollm"
"""llama.cpp's name of a pre-tokenizer that lets every digit stand alone. transformers knows it not
and would merge digits, as the model has not been trained."""

REFUSALS = (ValueError, NotImplementedError, KeyError, RuntimeError)
"""What transformers raises for a file that it does not read."""


def gguf_facts(file: Path) -> dict[str, Any]:
    """Where the model comes from. Raises InputError for what is no GGUF file."""
    from gguf import LlamaFileType
    from transformers.integrations.gguf import read_gguf_metadata

    try:
        metadata, _ = read_gguf_metadata(str(file))
    except Exception as error:  # any, for any bytes
        raise InputError(f"SRC: {file} is no GGUF file: {error}") from error
    kind = metadata.get("general.file_type")
    names = {member.value: member.name for member in LlamaFileType}
    return {
        "name": file.name.removesuffix(".gguf"),
        "model": metadata.get("general.name"),
        "file": file.name,
        "sha256": file_hash(file),
        "quantisation": names.get(kind, str(kind)).removeprefix("MOSTLY_").removeprefix("ALL_"),
        "licence": metadata.get("general.license"),
        "pre_tokenizer": metadata.get("tokenizer.ggml.pre"),
    }


def convert_gguf(file: Path, out: Path, say: Callable[[str], None]) -> None:
    """target/ (safetensors in bfloat16) and tokenizer/ in `out`.

    Raises InputError for an architecture or a tokenizer that transformers does not read.
    """
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    say("reading the tokenizer")
    _save_tokenizer(file, out / "tokenizer")
    say("reading the weights, dequantised to bfloat16")
    try:
        model = AutoModelForCausalLM.from_pretrained(
            str(file.parent),
            gguf_file=file.name,
            dtype=torch.bfloat16,
            quantization_config=GgufConfig(dequantize=True),
        )
    except REFUSALS as error:
        raise InputError(f"SRC: {file.name} cannot be read: {error}") from error
    # a plain model from here on; transformers would not save one that it takes for quantised
    model.hf_quantizer = None
    model.save_pretrained(out / "target")


def _save_tokenizer(file: Path, out: Path) -> None:
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    except REFUSALS as error:
        raise InputError(f"SRC: {file.name} has a tokenizer that is not read: {error}") from error
    if gguf_facts(file)["pre_tokenizer"] == SMOLLM:
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
    tokenizer.save_pretrained(out)
