"""Read a head's folder and check that it fits the target."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from workers.bundle import BundleError, read_json
from workers.torch_engine.models.draft_logits import DraftLogits
from workers.torch_engine.models.model import Model


def read_config(folder: Path, target: Model) -> dict[str, Any]:
    """Read a head's config.json. Raises BundleError if it is missing or for another target."""
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
    """Return the token ids [k] of LISTED, ascending, or None without that file.

    Raises BundleError for a file that holds no such list.
    """
    file = folder / LISTED
    if not file.is_file():
        return None
    ids = read_json(file).get("token_ids")
    if not ids or not all(isinstance(token, int) for token in ids):
        raise BundleError(f"{file}: token_ids must be a list of token ids")
    return torch.tensor(sorted(set(ids)))


class DraftVocabulary:
    """The target's tokens of a head's `size` logits.

    ids: [size] int64, None if the head knows all. Raises BundleError if the sizes do not fit, and
    where two logits are of one token.
    """

    def __init__(self, folder: Path, size: int, ids: Tensor | None, target: Model) -> None:
        vocab = target.vocab
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
        if ids is not None and len(set(ids.tolist())) < len(ids):
            raise BundleError(
                f"{folder}: 'd2t' or 'token_map' gives a token to several rows of the LM head: "
                "each row needs a token of its own"
            )
        self._ids = None if ids is None else ids.to(target.device)
        self._vocab = vocab

    def logits(self, values: Tensor) -> DraftLogits:
        """Wrap logits of an LM head of these tokens, [N, size] in any dtype."""
        return DraftLogits(values.float(), self._ids, self._vocab)
