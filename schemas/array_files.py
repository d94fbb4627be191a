"""NumPy's .npz files, read without trusting them."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.text_files import FileError, open_file


def read_bytes(file: Path) -> bytes:
    """Return the content of a regular file. Raises FileError."""
    with open_file(file) as stream:
        try:
            return stream.read()
        except OSError as error:
            raise FileError(f"{file}: {error.strerror}") from error


def unpack_arrays(content: bytes, place: str) -> dict[str, NDArray[Any]]:
    """Return the arrays in an .npz file's content by name; pickled ones are refused.

    Raises FileError naming `place`.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return dict(arrays.items())
    # zipfile, zlib, struct and NumPy raise different errors.
    except Exception as error:
        raise FileError(f"{place}: not an .npz file of plain arrays: {error}") from error
