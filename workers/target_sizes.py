"""How large a target is, as its config.json says, for those who do not load it."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from workers.bundle import BundleError, read_json

VOCABULARY, POSITIONS = "vocab_size", "max_position_embeddings"


@dataclass(frozen=True)
class TargetSizes:
    """vocab: rows of the logits. positions: tokens of a sequence; None: nothing bounds them."""

    vocab: int
    positions: int | None


def target_sizes(folder: Path) -> TargetSizes:
    """Read the sizes of a target in Hugging Face layout.

    Raises BundleError naming the field where one is missing or no positive integer.
    """
    body = read_json(folder / "config.json")
    fields = body.get("text_config", body)
    if not isinstance(fields, dict) or not {VOCABULARY, POSITIONS} <= fields.keys():
        fields = _in_full(folder)
    positions = fields.get(POSITIONS)
    return TargetSizes(
        _positive(fields.get(VOCABULARY), VOCABULARY, folder),
        None if positions is None else _positive(positions, POSITIONS, folder),
    )


def kv_numbers(folder: Path) -> int | None:
    """Return how many numbers the keys and values of a token are; None where config.json does not
    say, as that of a model without attention."""
    body = read_json(folder / "config.json")
    fields = body.get("text_config", body)
    heads = fields.get("num_attention_heads")
    own = fields.get("num_key_value_heads") or heads
    width = fields.get("head_dim") or (heads and fields.get("hidden_size", 0) // heads)
    sizes = fields.get("num_hidden_layers"), own, width
    known = all(type(size) is int and size > 0 for size in sizes)
    return 2 * math.prod(sizes) if known else None


def _positive(value: Any, name: str, folder: Path) -> int:
    if type(value) is not int or value < 1:
        raise BundleError(f"{folder}/config.json: {name} is {value!r}: expected a number above 0")
    return value


def _in_full(folder: Path) -> Mapping[str, Any]:
    """The fields under the names that most families use, with transformers' defaults."""
    config = read_config(folder).get_text_config()
    return {name: getattr(config, name, None) for name in (VOCABULARY, POSITIONS)}


def read_config(folder: Path) -> Any:
    """Read a part's config.json with transformers; raises BundleError where that fails."""
    from transformers import AutoConfig

    try:
        with _config_classes_alone():
            return AutoConfig.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
    except Exception as error:  # its validators raise classes of several libraries
        raise BundleError(f"{folder}/config.json: {error}") from error


@contextmanager
def _config_classes_alone() -> Iterator[None]:
    """Keep config classes from importing transformers' models, which takes 8 s of a core.

    With torch they do so for their docstrings, and to check an activation's name.
    """
    import transformers.tokenization_utils_base  # both as they are with torch
    import transformers.video_utils
    from transformers import utils
    from transformers.utils import import_utils

    with patch.object(import_utils, "is_torch_available", lambda: False):
        import transformers.utils.type_validators  # noqa: F401
    same = patch.object(utils, "auto_docstring", lambda made=None, **_: made or (lambda one: one))
    with same:
        yield
