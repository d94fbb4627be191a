"""Embedding prompts without a model: a table of token vectors.

The table that ships, in `router/encoder`, was distilled from sentence-transformers/all-MiniLM-L6-v2
(arXiv 2002.10957).
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from schemas import EncoderInfo
from schemas.json_files import read_json

SHIPPED = Path(__file__).parent / "encoder"
VECTORS_FILE = "vectors.npy"
TOKENIZER_FILE = "tokenizer.json"
INFO_FILE = "encoder.json"
FIX = "leave router.encoder and SPECADAPT_ENCODER out for the encoder that ships"


class EncoderMissingError(ValueError):
    """The folder has no usable encoder; the message says what to do."""


def encoder_dir() -> Path:
    """Return the encoder's folder: $SPECADAPT_ENCODER, else the one that ships."""
    named = os.environ.get("SPECADAPT_ENCODER")
    return Path(named).expanduser() if named else SHIPPED


def read_info(path: Path) -> EncoderInfo:
    """Return the identity of the encoder in `path`. Raises EncoderMissingError."""
    files = (VECTORS_FILE, TOKENIZER_FILE, INFO_FILE)
    missing = [file for file in files if not (path / file).is_file()]
    if missing:
        raise EncoderMissingError(f"no encoder in {path} ({', '.join(missing)} missing): {FIX}")
    try:
        return EncoderInfo.model_validate(read_json(path / INFO_FILE)["info"])
    except (ValueError, KeyError, TypeError) as error:
        raise EncoderMissingError(f"{path / INFO_FILE} is not readable ({error}): {FIX}") from error


class Encoder:
    """Embed texts as unit vectors with the token vectors in a folder.

    Safe to call from several threads. Raises EncoderMissingError.
    """

    def __init__(self, path: Path | None = None) -> None:
        folder = path if path is not None else encoder_dir()
        self.info = read_info(folder)
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
            self._counter = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
            self._vectors = np.load(folder / VECTORS_FILE, allow_pickle=False)
        except Exception as error:  # neither library raises anything narrower
            raise EncoderMissingError(
                f"the encoder in {folder} cannot be read ({error}): {FIX}"
            ) from error
        truncation = self._counter.truncation
        assert truncation is not None  # texts are cut at the encoder's length
        self.max_tokens = int(truncation["max_length"])
        self._counter.no_truncation()

    def token_count(self, text: str) -> int:
        """Return the number of the text's tokens with the two special ones, without truncation."""
        return len(self._counter.encode(text).ids)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return unit vectors [n, dimension], float32; a text is cut at `max_tokens`.

        A vector is the normalised sum of token vectors, whose lengths are the tokens' weights. A
        text without tokens has zeros.
        """
        vectors = np.empty((len(texts), self.info.dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            # Without the two special tokens, which say nothing about a text.
            ids = self._tokenizer.encode(text).ids[1:-1]
            whole = self._vectors[ids].sum(axis=0, dtype=np.float32)
            vectors[row] = whole / max(float(np.linalg.norm(whole)), 1e-9)
        return vectors
