"""Embedding prompts without torch.

The encoder that ships, in `router/encoder`, is a table of token vectors. It was distilled from
sentence-transformers/all-MiniLM-L6-v2 (arXiv 2002.10957), which `router.fit.encoder_export`
exports to ONNX.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from schemas import EncoderInfo
from schemas.json_files import read_json

SHIPPED = Path(__file__).parent / "encoder"
VECTORS_FILE = "vectors.npy"
MODEL_FILE = "model.onnx"
TOKENIZER_FILE = "tokenizer.json"
INFO_FILE = "encoder.json"
FIX = (
    "leave router.encoder and SPECADAPT_ENCODER out for the encoder that ships, or run "
    "`specadapt export-encoder --out DIR`"
)


class EncoderMissingError(ValueError):
    """The folder has no usable encoder; the message names the command that exports one."""


def encoder_dir() -> Path:
    """Return the encoder's folder: $SPECADAPT_ENCODER, else the one that ships."""
    named = os.environ.get("SPECADAPT_ENCODER")
    return Path(named).expanduser() if named else SHIPPED


def read_info(path: Path) -> EncoderInfo:
    """Return the identity of the encoder in `path`. Raises EncoderMissingError."""
    model = VECTORS_FILE if (path / VECTORS_FILE).is_file() else MODEL_FILE
    missing = [f for f in (model, TOKENIZER_FILE, INFO_FILE) if not (path / f).is_file()]
    if missing:
        raise EncoderMissingError(f"no encoder in {path} ({', '.join(missing)} missing): {FIX}")
    try:
        return EncoderInfo.model_validate(read_json(path / INFO_FILE)["info"])
    except (ValueError, KeyError, TypeError) as error:
        raise EncoderMissingError(f"{path / INFO_FILE} is not readable ({error}): {FIX}") from error


Ids = list[int]


class Encoder:
    """Embed texts as unit vectors with the table or the ONNX graph in a folder.

    Safe to call from several threads. Raises EncoderMissingError.
    """

    def __init__(self, path: Path | None = None) -> None:
        folder = path if path is not None else encoder_dir()
        self.info = read_info(folder)
        table = (folder / VECTORS_FILE).is_file()
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
            self._counter = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
            self._vector = _by_table(folder) if table else _by_graph(folder)
        except EncoderMissingError:
            raise
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

        The table gives a text without tokens zeros. Texts run one by one: the graph scales int8
        activations by the largest value of the whole tensor, so other texts in a batch would change
        a prompt's vector and perhaps its cluster.
        """
        vectors = np.empty((len(texts), self.info.dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            vectors[row] = self._vector(self._tokenizer.encode(text).ids)
        return vectors


def _by_table(folder: Path) -> Callable[[Ids], NDArray[np.float32]]:
    """Return the normalised sum of token vectors; a vector's length is its token's weight."""
    vectors = np.load(folder / VECTORS_FILE, allow_pickle=False)

    def vector(ids: Ids) -> NDArray[np.float32]:
        # Without the two special tokens, which say nothing about a text.
        whole: NDArray[np.float32] = vectors[ids[1:-1]].sum(axis=0, dtype=np.float32)
        return whole / max(float(np.linalg.norm(whole)), 1e-9)

    return vector


def _by_graph(folder: Path) -> Callable[[Ids], NDArray[np.float32]]:
    try:
        import onnxruntime
    except ImportError as error:
        fix = "pip install 'specadapt[exporting]'"
        raise EncoderMissingError(f"{folder} needs onnxruntime: {fix}") from error

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    # Its thread sleeps while idle, because decoding replicas need the same cores.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(
        str(folder / MODEL_FILE), options, providers=["CPUExecutionProvider"]
    )

    def vector(ids: Ids) -> NDArray[np.float32]:
        inputs = {"input_ids": np.asarray([ids], dtype=np.int64)}
        found: NDArray[np.float32] = session.run(None, inputs)[0][0]
        return found

    return vector
