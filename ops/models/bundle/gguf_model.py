"""A GGUF file becomes a target in bfloat16 and a tokenizer."""

from collections.abc import Callable
from pathlib import Path

from ops.models.bundle.gguf_config import architecture_of, read_config
from ops.models.bundle.gguf_file import GgufFile
from ops.models.bundle.gguf_tokenizer import save_tokenizer
from ops.models.bundle.gguf_weights import save_weights


def convert_gguf(path: Path, out: Path, say: Callable[[str], None]) -> None:
    """Write target/ (safetensors in bfloat16) and tokenizer/ to `out`.

    Raises InputError naming the field or tensor that would make another model of it.
    """
    from transformers import GenerationConfig

    file, target = GgufFile(path), out / "target"
    config = read_config(file)
    target.mkdir()
    say("reading the weights, dequantised to bfloat16")
    save_weights(file, architecture_of(file), config, target)
    say("reading the tokenizer")
    save_tokenizer(file, out / "tokenizer")
    config.save_pretrained(target)
    GenerationConfig.from_model_config(config).save_pretrained(target)
