"""What every head's folder has to say, and whether it fits the target."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from workers.bundle import BundleError, read_json
from workers.torch_engine.models.draft_logits import DraftLogits
from workers.torch_engine.models.model import Model


def read_config(folder: Path, target: Model) -> dict[str, Any]:
    """A head's config.json; raises BundleError where there is none or it is for another target."""
    file = folder / "config.json"
    config = read_json(file)
    hidden = target.embedding.shape[1]
    for name, wanted in (("hidden_size", hidden), ("vocab_size", target.vocab)):
        if config.get(name) != wanted:
            raise BundleError(
                f"{file}: {name} is {config.get(name)}, the target's is {wanted}: "
                "a head serves only the target it was trained for"
            )
    return config


LISTED = "draft_vocabulary.json"
"""Beside a head that shares the target's LM head: `{"token_ids": [...]}`, the tokens it drafts. A
file of its own, since vLLM, which drafts with all of them, loads no tensor it does not know."""


def listed_tokens(folder: Path) -> Tensor | None:
    """The token ids [k] of LISTED, ascending, where the folder has it; raises BundleError for what
    is no such list."""
    file = folder / LISTED
    if not file.is_file():
        return None
    ids = read_json(file).get("token_ids")
    if not ids or not all(isinstance(token, int) for token in ids):
        raise BundleError(f"{file}: token_ids must be a list of token ids")
    return torch.tensor(sorted(set(ids)))


class DraftVocabulary:
    """The target's tokens that a head with `size` logits knows.

    ids: [size] int64, None where the head knows all. Raises BundleError where that does not fit.
    """

    def __init__(self, folder: Path, size: int, ids: Tensor | None, vocab: int) -> None:
        if size != (vocab if ids is None else len(ids)):
            raise BundleError(
                f"{folder}: the LM head has {size} rows for a vocabulary of {vocab}, of which "
                f"'d2t' or 'token_map' names {'none' if ids is None else len(ids)}"
            )
        if ids is not None and not 0 <= int(ids.min()) <= int(ids.max()) < vocab:
            raise BundleError(
                f"{folder}: the draft vocabulary maps to tokens {int(ids.min())} .. "
                f"{int(ids.max())}, the target has {vocab}"
            )
        self._ids, self._vocab = ids, vocab

    def logits(self, values: Tensor) -> DraftLogits:
        """What an LM head of these tokens says, [N, size] in any dtype."""
        return DraftLogits(values.float(), self._ids, self._vocab)
