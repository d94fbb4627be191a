"""Embedding prompts with an ONNX session and a tokenizer, without torch.

The encoder is sentence-transformers/all-MiniLM-L6-v2 (arXiv 2002.10957), exported once by
`router.fit.encoder_export`.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

from schemas import EncoderInfo
from schemas.json_files import read_json

MODEL_FILE = "model.onnx"
TOKENIZER_FILE = "tokenizer.json"
INFO_FILE = "encoder.json"
FIX = "run `specadapt export-encoder`, or point SPECADAPT_ENCODER at an exported encoder"


class EncoderMissingError(ValueError):
    """The folder has no usable encoder; the message names the command that exports one."""


def encoder_dir() -> Path:
    """Return the exported encoder's folder: $SPECADAPT_ENCODER, else the user's cache folder."""
    named = os.environ.get("SPECADAPT_ENCODER")
    if named:
        return Path(named).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "specadapt" / "encoder"


def read_info(path: Path) -> EncoderInfo:
    """Return the identity of the encoder exported to `path`. Raises EncoderMissingError."""
    missing = [f for f in (MODEL_FILE, TOKENIZER_FILE, INFO_FILE) if not (path / f).is_file()]
    if missing:
        raise EncoderMissingError(f"no encoder in {path} ({', '.join(missing)} missing): {FIX}")
    try:
        return EncoderInfo.model_validate(read_json(path / INFO_FILE)["info"])
    except (ValueError, KeyError, TypeError) as error:
        raise EncoderMissingError(f"{path / INFO_FILE} is not readable ({error}): {FIX}") from error


class Encoder:
    """Embeds texts as unit vectors; safe to call from several threads.

    The session's own thread sleeps instead of spinning while idle, because decoding replicas need
    the same cores.
    """

    def __init__(self, path: Path | None = None) -> None:
        folder = path if path is not None else encoder_dir()
        self.info = read_info(folder)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
            self._counter = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
            self._session = onnxruntime.InferenceSession(
                str(folder / MODEL_FILE), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # neither library raises anything narrower
            raise EncoderMissingError(
                f"the encoder in {folder} cannot be read ({error}): {FIX}"
            ) from error
        truncation = self._counter.truncation
        assert truncation is not None  # the export cuts texts at the encoder's length
        self.max_tokens = int(truncation["max_length"])
        self._counter.no_truncation()

    def token_count(self, text: str) -> int:
        """Return the number of the text's tokens with the two special ones, without truncation."""
        return len(self._counter.encode(text).ids)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return unit vectors [n, dimension], float32; a text is cut at `max_tokens`.

        Texts run one by one: int8 activations are scaled by the largest value of the whole tensor,
        so other texts in a batch would change a prompt's vector and perhaps its cluster.
        """
        vectors = np.empty((len(texts), self.info.dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            ids = np.asarray([self._tokenizer.encode(text).ids], dtype=np.int64)
            vectors[row] = self._session.run(None, {"input_ids": ids})[0][0]
        return vectors
